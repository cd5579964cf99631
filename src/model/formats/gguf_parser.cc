#include "model/formats/gguf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/bits.h"

namespace lockstep::model {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

// Limits of the format (specification) or, where it has none, far above any real file and small enough that the tables
// stay harmless: the largest published models have under 100 keys and under 50,000 tensors.
constexpr uint64_t kMaxKeyBytes = 65535;      // specification
constexpr uint64_t kMaxTensorNameBytes = 64;  // specification
constexpr uint32_t kMaxDims = 4;              // specification
constexpr uint64_t kMaxValues = 65536;
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr uint64_t kMaxAlignmentBytes = 1 << 20;  // above the largest page that a writer could have in mind
constexpr int kMaxArrayDepth = 8;
// What a claimed count is checked against before anything is reserved: the fewest bytes of an entry. A key counts with
// its length alone, so that a short file gets the better message about that key.
constexpr uint64_t kMinValueBytes = 8;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

// Bytes of a scalar; 0 for strings, arrays and unknown ids.
uint64_t ScalarBytes(GgufValueType t) {
  switch (t) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return 0;
  }
  return 0;
}

constexpr uint32_t kLastValueType = 12;

}  // namespace

Status GgufParser::Corrupt(const std::string& text) const {
  return CorruptFile(fmt::format("{}: {}", name_, text));
}

Status GgufParser::CutShort(const std::string& what) const {
  return Corrupt(
      fmt::format("{} at byte {} runs past the end of the file ({} bytes)", what, reader_.offset(), bytes_.size()));
}

Result<std::unique_ptr<GgufFile>> GgufParser::Run() {
  file_.reset(new GgufFile());
  file_->path_ = name_;
  LS_RETURN_IF_ERROR(ReadHeader());
  LS_RETURN_IF_ERROR(ReadValues());
  LS_RETURN_IF_ERROR(IndexValues());
  LS_RETURN_IF_ERROR(ReadAlignment());
  LS_RETURN_IF_ERROR(ReadTensors());
  return std::move(file_);
}

Status GgufParser::ReadHeader() {
  if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
    return Corrupt("not a GGUF file: it does not begin with the letters GGUF");
  }
  uint32_t magic = 0, version = 0;
  if (!reader_.Read(&magic) || !reader_.Read(&version)) return CutShort("the version");
  // A swapped small number has its low half empty; no version comes near 65536.
  if (version != 0 && (version & 0xffff) == 0) {
    return Unsupported(
        fmt::format("{}: big-endian file (version {:#010x}); only little-endian GGUF is read", name_, version));
  }
  if (version != 2 && version != 3) {
    return Unsupported(fmt::format("{}: GGUF version {}; versions 2 and 3 are read", name_, version));
  }
  file_->version_ = version;
  if (!reader_.Read(&num_tensors_) || !reader_.Read(&num_values_)) return CutShort("the header");
  if (num_values_ > kMaxValues || num_values_ > reader_.remaining() / kMinValueBytes) {
    return Corrupt(fmt::format("{} metadata keys claimed at byte 16; {} bytes follow the header and the limit is {}",
                               num_values_, reader_.remaining(), kMaxValues));
  }
  if (num_tensors_ > kMaxTensors || num_tensors_ > reader_.remaining() / kMinTensorBytes) {
    return Corrupt(fmt::format("{} tensors claimed at byte 8; {} bytes follow the header and the limit is {}",
                               num_tensors_, reader_.remaining(), kMaxTensors));
  }
  return OkStatus();
}

Status GgufParser::ReadValues() {
  file_->values_.resize(num_values_);
  for (uint64_t i = 0; i < num_values_; ++i) {
    GgufValue& value = file_->values_[i];
    uint64_t start = reader_.offset();
    uint64_t key_bytes = 0;
    if (!reader_.Read(&key_bytes)) return CutShort(fmt::format("metadata key {}", i));
    if (key_bytes == 0) return Corrupt(fmt::format("metadata key {} at byte {} is empty", i, start));
    if (key_bytes > kMaxKeyBytes) {
      return Corrupt(fmt::format("metadata key {} at byte {} is {} bytes long; the format allows {}", i, start,
                                 key_bytes, kMaxKeyBytes));
    }
    std::span<const uint8_t> text;
    if (!reader_.Take(key_bytes, &text)) {
      return CutShort(fmt::format("metadata key {} of {} bytes", i, key_bytes));
    }
    value.key = {reinterpret_cast<const char*>(text.data()), text.size()};
    LS_RETURN_IF_ERROR(ReadValue(&value));
  }
  return OkStatus();
}

Status GgufParser::ReadValue(GgufValue* value) {
  std::string shown = GgufFile::Shown(value->key);
  uint32_t type = 0;
  if (!reader_.Read(&type)) return CutShort(fmt::format("key {}: its type", shown));
  if (type > kLastValueType) {
    return Corrupt(
        fmt::format("key {}: value type {} at byte {} is not one of the format's", shown, type, reader_.offset() - 4));
  }
  value->type = static_cast<GgufValueType>(type);
  value->num_elems = 1;
  if (value->type == GgufValueType::kArray) return SkipArray(value->key, 1, value);
  if (value->type == GgufValueType::kString) {
    std::string_view text;
    uint64_t start = reader_.offset(), claimed = 0;
    if (!reader_.ReadString(&text)) {
      std::memcpy(&claimed, bytes_.data() + start, std::min<uint64_t>(8, reader_.remaining()));
      return CutShort(fmt::format("key {}: its text of {} bytes", shown, claimed));
    }
    value->payload = {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
    return OkStatus();
  }
  if (!reader_.Take(ScalarBytes(value->type), &value->payload)) {
    return CutShort(fmt::format("key {}: its value", shown));
  }
  if (value->type == GgufValueType::kBool && value->payload[0] > 1) {
    return Corrupt(
        fmt::format("key {}: bool at byte {} is {}; 0 or 1 expected", shown, reader_.offset() - 1, value->payload[0]));
  }
  return OkStatus();
}

// Finds the end of an array. Strings and inner arrays have lengths of their own, so they are walked; each step consumes
// at least 8 bytes of the file, which bounds the work by the file's size whatever the count claims.
Status GgufParser::SkipArray(std::string_view key, int depth, GgufValue* value) {
  auto shown = [&] { return GgufFile::Shown(key); };
  uint64_t start = reader_.offset(), count = 0;
  uint32_t elem = 0;
  if (!reader_.Read(&elem) || !reader_.Read(&count)) return CutShort(fmt::format("key {}: its array", shown()));
  if (elem > kLastValueType) {
    return Corrupt(
        fmt::format("key {}: array element type {} at byte {} is not one of the format's", shown(), elem, start));
  }
  auto elem_type = static_cast<GgufValueType>(elem);
  bool is_array = elem_type == GgufValueType::kArray, is_string = elem_type == GgufValueType::kString;
  uint64_t min_bytes = is_array ? 12 : is_string ? 8 : ScalarBytes(elem_type);
  if (count > reader_.remaining() / min_bytes) {
    return Corrupt(fmt::format("key {}: array at byte {} claims {} elements; {} bytes remain in the file", shown(),
                               start, count, reader_.remaining()));
  }
  uint64_t begin = reader_.offset();
  if (is_array) {
    if (depth == kMaxArrayDepth) {
      return Corrupt(fmt::format("key {}: arrays nested deeper than {} at byte {}", shown(), kMaxArrayDepth, start));
    }
    for (uint64_t i = 0; i < count; ++i) LS_RETURN_IF_ERROR(SkipArray(key, depth + 1, nullptr));
  } else if (is_string) {
    std::string_view text;
    for (uint64_t i = 0; i < count; ++i) {
      if (!reader_.ReadString(&text)) return CutShort(fmt::format("key {}: string {}", shown(), i));
    }
  } else if (!reader_.Skip(count * min_bytes)) {  // cannot overflow: count <= remaining / min_bytes
    return CutShort(fmt::format("key {}: its array", shown()));
  }
  if (value) {
    value->elem_type = elem_type;
    value->num_elems = count;
    value->payload = bytes_.subspan(begin, reader_.offset() - begin);
  }
  return OkStatus();
}

// Sorted indices instead of a hash map: a file cannot choose keys that make a sort slow.
Status GgufParser::IndexValues() {
  auto& order = file_->value_order_;
  const auto& values = file_->values_;
  order.resize(values.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return values[a].key < values[b].key; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (values[order[i - 1]].key == values[order[i]].key) {
      return Corrupt(fmt::format("key {}: appears twice", GgufFile::Shown(values[order[i]].key)));
    }
  }
  return OkStatus();
}

Status GgufParser::ReadAlignment() {
  const GgufValue* v = file_->FindValue("general.alignment");
  if (!v) return OkStatus();
  if (v->type != GgufValueType::kU32) {
    return Corrupt(fmt::format("key general.alignment: value type {}, u32 expected", static_cast<uint32_t>(v->type)));
  }
  uint32_t alignment = 0;
  std::memcpy(&alignment, v->payload.data(), sizeof alignment);
  if (!std::has_single_bit(alignment) || alignment > kMaxAlignmentBytes) {
    return Corrupt(
        fmt::format("key general.alignment: {} is not a power of two up to {}", alignment, kMaxAlignmentBytes));
  }
  alignment_ = alignment;
  return OkStatus();
}

Status GgufParser::ReadTensors() {
  std::vector<uint64_t> offsets(num_tensors_);
  file_->tensors_.resize(num_tensors_);
  for (uint64_t i = 0; i < num_tensors_; ++i) {
    LS_RETURN_IF_ERROR(ReadTensor(i, &offsets[i], &file_->tensors_[i]));
  }
  LS_RETURN_IF_ERROR(file_->IndexTensors());
  LS_RETURN_IF_ERROR(PlaceTensors(offsets));
  return CheckOverlap();
}

Status GgufParser::ReadTensor(uint64_t index, uint64_t* offset, GgufTensor* tensor) {
  uint64_t start = reader_.offset(), name_bytes = 0;
  std::span<const uint8_t> text;
  if (!reader_.Read(&name_bytes)) return CutShort(fmt::format("tensor {}: its name", index));
  if (name_bytes == 0 || name_bytes > kMaxTensorNameBytes) {
    return Corrupt(fmt::format("tensor {}: name of {} bytes at byte {}; 1 to {} expected", index, name_bytes, start,
                               kMaxTensorNameBytes));
  }
  if (!reader_.Take(name_bytes, &text)) return CutShort(fmt::format("tensor {}: its name", index));
  tensor->name.assign(reinterpret_cast<const char*>(text.data()), text.size());
  std::string shown = GgufFile::Shown(tensor->name);
  uint32_t num_dims = 0, type = 0;
  if (!reader_.Read(&num_dims)) return CutShort(fmt::format("tensor {}: its dimensions", shown));
  if (num_dims < 1 || num_dims > kMaxDims) {
    return Corrupt(fmt::format("tensor {}: {} dimensions at byte {}; 1 to {} expected", shown, num_dims,
                               reader_.offset() - 4, kMaxDims));
  }
  tensor->shape.resize(num_dims);
  for (uint32_t d = num_dims; d-- > 0;) {  // the file has the innermost first
    if (!reader_.Read(&tensor->shape[d])) return CutShort(fmt::format("tensor {}: its dimensions", shown));
  }
  if (!reader_.Read(&type) || !reader_.Read(offset)) {
    return CutShort(fmt::format("tensor {}: its type and offset", shown));
  }
  tensor->type = FindGgmlType(type);
  if (!tensor->type) {
    return Status(IsWithdrawnGgmlType(type) ? StatusCode::kUnsupported : StatusCode::kCorruptFile,
                  fmt::format("{}: tensor {}: type id {} {}", name_, shown, type,
                              IsWithdrawnGgmlType(type) ? "was withdrawn from the format; the file must be made again"
                                                        : "is not known"));
  }
  return Layout(shown, tensor);
}

// Bytes of the tensor from its shape and type.
Status GgufParser::Layout(std::string_view name, GgufTensor* tensor) const {
  const GgmlType& type = *tensor->type;
  std::string shape = fmt::format("{}", fmt::join(tensor->shape, ", "));
  // A 0 must not hide an absurd neighbour, so the product of the others is checked too.
  uint64_t product = 1;
  bool empty = false, fits = true;
  for (uint64_t dim : tensor->shape) {
    if (dim == 0) empty = true;
    fits = fits && CheckedMul(product, std::max<uint64_t>(dim, 1), &product);
  }
  uint64_t cols = tensor->shape.back();
  if (!fits || product > INT64_MAX) {
    return Corrupt(fmt::format("tensor {}: shape [{}] overflows", name, shape));
  }
  if (cols % type.block_elems != 0) {
    return Corrupt(fmt::format("tensor {}: row of {} elements is no multiple of {}'s block of {}", name, cols,
                               type.name, type.block_elems));
  }
  uint64_t num_blocks = empty ? 0 : product / type.block_elems;
  if (!CheckedMul(num_blocks, type.block_bytes, &tensor->bytes)) {
    return Corrupt(fmt::format("tensor {}: size of shape [{}] overflows", name, shape));
  }
  if (!type.dtype && mode_ == GgufMode::kLoad) {
    return Unsupported(
        fmt::format("{}: tensor {}: type {} has no kernel here ({} have)", name_, name, type.name, BuiltGgmlTypes()));
  }
  if (type.dtype) tensor->dtype = *type.dtype;
  return OkStatus();
}

Status GgufParser::PlaceTensors(const std::vector<uint64_t>& offsets) {
  uint64_t data_start = AlignUp(reader_.offset(), alignment_);
  uint64_t data_bytes = data_start < bytes_.size() ? bytes_.size() - data_start : 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    GgufTensor& t = file_->tensors_[i];
    auto shown = [&] { return GgufFile::Shown(t.name); };
    if (offsets[i] % alignment_ != 0) {
      return Corrupt(
          fmt::format("tensor {}: offset {} is no multiple of the alignment {}", shown(), offsets[i], alignment_));
    }
    if (offsets[i] > data_bytes || t.bytes > data_bytes - offsets[i]) {
      return Corrupt(
          fmt::format("tensor {}: {} bytes at offset {} leave the data section ({} bytes from byte "
                      "{}); the file is cut short or "
                      "its table is wrong",
                      shown(), t.bytes, offsets[i], data_bytes, data_start));
    }
    if (t.bytes == 0) continue;
    t.data = bytes_.data() + data_start + offsets[i];
    // Kernels read F32 as 4-byte words and the rest as 2-byte ones; alignment 1 is legal in the format.
    uint64_t word_bytes = t.type->id == 0 ? 4 : 2;
    if (mode_ == GgufMode::kLoad && (data_start + offsets[i]) % word_bytes != 0) {
      return Unsupported(
          fmt::format("{}: tensor {}: data at byte {} is not aligned to the {} bytes that {} needs "
                      "(general.alignment is {})",
                      name_, shown(), data_start + offsets[i], word_bytes, t.type->name, alignment_));
    }
  }
  return OkStatus();
}

Status GgufParser::CheckOverlap() const {
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& t : file_->tensors_) {
    if (t.bytes > 0) order.push_back(&t);
  }
  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) { return a->data < b->data; });
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& a = *order[i - 1];
    const GgufTensor& b = *order[i];
    if (a.data + a.bytes > b.data) {
      return Corrupt(fmt::format("tensor {}: data at byte {} overlaps that of tensor {}", GgufFile::Shown(b.name),
                                 b.data - bytes_.data(), GgufFile::Shown(a.name)));
    }
  }
  return OkStatus();
}

}  // namespace lockstep::model
