#include "model/formats/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "model/formats/gguf.h"
#include "model/formats/json_events.h"

namespace lockstep::model {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference reader's limit
constexpr size_t kMaxTensors = 1 << 20;            // the largest published models have under 2^18
constexpr size_t kMaxMetadata = 1 << 16;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxDims = 8;
constexpr JsonLimits kLimits = {.max_depth = 3, .max_values = 1 << 25, .max_text_bytes = kMaxHeaderBytes};
constexpr std::string_view kMetadata = "__metadata__";

const SafetensorsType kTypes[] = {
    {"BOOL", 1, {}},    {"U8", 1, {}},  {"I8", 1, {}},           {"F8_E5M2", 1, {}},      {"F8_E4M3", 1, {}},
    {"F8_E8M0", 1, {}}, {"I16", 2, {}}, {"U16", 2, {}},          {"F16", 2, DType::kF16}, {"BF16", 2, DType::kBF16},
    {"I32", 4, {}},     {"U32", 4, {}}, {"F32", 4, DType::kF32}, {"C64", 8, {}},          {"F64", 8, {}},
    {"I64", 8, {}},     {"U64", 8, {}},
};

// A tensor as the header states it; nothing of it is checked against the data yet.
struct Stated {
  SafetensorsTensor tensor;
  uint64_t begin = 0, end = 0;
};

class HeaderHandler final : public JsonHandler {
 public:
  HeaderHandler(const std::string& name, std::vector<std::pair<std::string, std::string>>* metadata)
      : file_(name), metadata_(metadata) {}

  std::vector<Stated>& tensors() { return tensors_; }

  Status Key(std::string key) override {
    if (where_ == Where::kMetadata) {
      if (metadata_->size() == kMaxMetadata) {
        return CorruptFile(fmt::format("{}: {}: more than {} keys", file_, kMetadata, kMaxMetadata));
      }
      metadata_->emplace_back(std::move(key), std::string());
      return OkStatus();
    }
    if (where_ == Where::kRoot) {
      if (key.size() > kMaxNameBytes) {
        return CorruptFile(fmt::format("{}: tensor {}: name of {} bytes, at most {} expected", file_,
                                       GgufFile::Shown(key), key.size(), kMaxNameBytes));
      }
      name_ = std::move(key);
      return OkStatus();
    }
    field_ = key == "dtype" ? kDtype : key == "shape" ? kShape : key == "data_offsets" ? kOffsets : 0;
    if (field_ == 0) return Bad(fmt::format("unknown field {}", GgufFile::Shown(key)));
    if (seen_ & field_) return Bad(fmt::format("field {} twice", key));
    seen_ |= field_;
    return OkStatus();
  }

  Status Scalar(JsonScalar value) override {
    switch (where_) {
      case Where::kMetadata:
        if (value.kind != JsonScalar::Kind::kString) {
          return CorruptFile(fmt::format("{}: {}: {} is {}, a string expected", file_, kMetadata,
                                         GgufFile::Shown(metadata_->back().first), value.Shown()));
        }
        metadata_->back().second = std::move(value.text);
        return OkStatus();
      case Where::kTensor:
        if (field_ == kDtype && value.kind == JsonScalar::Kind::kString) return Type(value.text);
        return Bad(fmt::format("{} is {}, {} expected", FieldName(), value.Shown(),
                               field_ == kDtype ? "a string" : "an array"));
      case Where::kShape:
        return Dim(value);
      case Where::kOffsets:
        return Offset(value);
      case Where::kRoot:
      case Where::kOutside:
        break;
    }
    return Bad(fmt::format("is {}, an object expected", value.Shown()));
  }

  Status BeginObject() override {
    switch (where_) {
      case Where::kOutside:
        where_ = Where::kRoot;
        return OkStatus();
      case Where::kRoot:
        seen_ = 0;
        if (name_ == kMetadata) {
          where_ = Where::kMetadata;
          return std::exchange(has_metadata_, true) ? Bad("twice in the file") : OkStatus();
        }
        if (tensors_.size() == kMaxTensors) {
          return CorruptFile(fmt::format("{}: more than {} tensors", file_, kMaxTensors));
        }
        where_ = Where::kTensor;
        tensors_.emplace_back().tensor.name = name_;
        return OkStatus();
      default:
        return Bad("an object where none belongs");
    }
  }

  Status EndObject() override {
    const Where ended = where_;
    where_ = ended == Where::kRoot ? Where::kOutside : Where::kRoot;
    if (ended == Where::kTensor && seen_ != (kDtype | kShape | kOffsets)) {
      return Bad(fmt::format("{} is missing", !(seen_ & kDtype)   ? "dtype"
                                              : !(seen_ & kShape) ? "shape"
                                                                  : "data_offsets"));
    }
    return OkStatus();
  }

  Status BeginArray() override {
    if (where_ != Where::kTensor || field_ == kDtype) return Bad("an array where none belongs");
    where_ = field_ == kShape ? Where::kShape : Where::kOffsets;
    num_offsets_ = 0;
    return OkStatus();
  }

  Status EndArray() override {
    if (where_ == Where::kOffsets && num_offsets_ != 2) {
      return Bad(fmt::format("data_offsets has {} elements, 2 expected", num_offsets_));
    }
    where_ = Where::kTensor;
    return OkStatus();
  }

 private:
  enum class Where { kOutside, kRoot, kMetadata, kTensor, kShape, kOffsets };
  enum Field { kDtype = 1, kShape = 2, kOffsets = 4 };

  const char* FieldName() const { return field_ == kDtype ? "dtype" : field_ == kShape ? "shape" : "data_offsets"; }
  Status Bad(const std::string& text) const {
    return CorruptFile(fmt::format("{}: tensor {}: {}", file_, GgufFile::Shown(name_), text));
  }

  Status Type(const std::string& text) {
    for (const SafetensorsType& type : kTypes) {
      if (text != type.name) continue;
      tensors_.back().tensor.type = &type;
      return OkStatus();
    }
    return Unsupported(
        fmt::format("{}: tensor {}: dtype {} is not known here", file_, GgufFile::Shown(name_), GgufFile::Shown(text)));
  }
  Status Dim(const JsonScalar& value) {
    std::vector<uint64_t>& shape = tensors_.back().tensor.shape;
    if (value.kind != JsonScalar::Kind::kUint) {
      return Bad(fmt::format("shape[{}] is {}, an integer from 0 expected", shape.size(), value.Shown()));
    }
    if (shape.size() == kMaxDims) return Bad(fmt::format("more than {} dimensions", kMaxDims));
    shape.push_back(value.uint);
    return OkStatus();
  }
  Status Offset(const JsonScalar& value) {
    if (value.kind != JsonScalar::Kind::kUint) {
      return Bad(fmt::format("data_offsets[{}] is {}, an integer from 0 expected", num_offsets_, value.Shown()));
    }
    if (num_offsets_ < 2) (num_offsets_ == 0 ? tensors_.back().begin : tensors_.back().end) = value.uint;
    ++num_offsets_;
    return OkStatus();
  }

  const std::string& file_;
  std::vector<std::pair<std::string, std::string>>* metadata_;
  std::vector<Stated> tensors_;
  Where where_ = Where::kOutside;
  std::string name_;
  int field_ = 0, seen_ = 0;
  uint64_t num_offsets_ = 0;
  bool has_metadata_ = false;
};

// The bytes of the elements; false where the product overflows on its way, as in the reference reader: [2^63, 4, 0] does.
bool NumBytes(const SafetensorsTensor& t, uint64_t* out) {
  *out = t.type->bytes;
  for (uint64_t dim : t.shape) {
    if (__builtin_mul_overflow(*out, dim, out)) return false;
  }
  return true;
}

// Places the tensors in the data; sorts them by their offsets.
Status Place(std::span<const uint8_t> data, const std::string& file, std::vector<Stated>& all) {
  std::stable_sort(all.begin(), all.end(), [](const Stated& a, const Stated& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t used = 0;
  const Stated* before = nullptr;
  for (Stated& s : all) {
    SafetensorsTensor& t = s.tensor;
    auto bad = [&](const std::string& text) {
      return CorruptFile(fmt::format("{}: tensor {}: {}", file, GgufFile::Shown(t.name), text));
    };
    if (s.end < s.begin) return bad(fmt::format("data_offsets [{}, {}] end before they begin", s.begin, s.end));
    if (s.end > data.size()) {
      return bad(fmt::format("data_offsets [{}, {}], but the file has {} bytes of data", s.begin, s.end, data.size()));
    }
    uint64_t bytes = 0;
    if (!NumBytes(t, &bytes)) return bad(fmt::format("shape [{}] is too large", fmt::join(t.shape, ", ")));
    if (bytes != s.end - s.begin) {
      return bad(fmt::format("data_offsets [{}, {}] hold {} bytes, but {} [{}] has {}", s.begin, s.end, s.end - s.begin,
                             t.type->name, fmt::join(t.shape, ", "), bytes));
    }
    if (s.begin != used) {
      return bad(fmt::format("data_offsets [{}, {}] {}, which ends at {}", s.begin, s.end,
                             s.begin < used ? "overlap what lies before" : "leave a hole after what lies before",
                             used) +
                 (before ? fmt::format(" (tensor {})", GgufFile::Shown(before->tensor.name)) : ""));
    }
    used = s.end;
    t.bytes = bytes;
    t.data = bytes == 0 ? nullptr : data.data() + s.begin;
    before = &s;
  }
  if (used != data.size()) {
    return CorruptFile(fmt::format("{}: {} bytes of data, but the tensors end at {}", file, data.size(), used));
  }
  return OkStatus();
}

Status CheckMetadata(const std::string& file, const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : metadata) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice == keys.end()) return OkStatus();
  return CorruptFile(fmt::format("{}: {}: key {} twice", file, kMetadata, GgufFile::Shown(*twice)));
}

}  // namespace

Status ReadSafetensorsHeader(std::span<const uint8_t> bytes, const std::string& name,
                             std::vector<SafetensorsTensor>* tensors,
                             std::vector<std::pair<std::string, std::string>>* metadata) {
  constexpr std::string_view kLfsPointer = "version https://git-lfs";
  if (bytes.size() > kLfsPointer.size() && std::memcmp(bytes.data(), kLfsPointer.data(), kLfsPointer.size()) == 0) {
    return CorruptFile(fmt::format("{}: a Git LFS pointer, not the file itself", name));
  }
  if (bytes.size() < kLengthBytes) {
    return CorruptFile(fmt::format("{}: not a safetensors file: {} bytes", name, bytes.size()));
  }
  uint64_t length_bytes;
  std::memcpy(&length_bytes, bytes.data(), sizeof length_bytes);
  std::span<const uint8_t> rest = bytes.subspan(kLengthBytes);
  if (length_bytes > kMaxHeaderBytes || length_bytes > rest.size()) {
    return CorruptFile(fmt::format("{}: header of {} bytes, at most {} expected", name, length_bytes,
                                   std::min<uint64_t>(kMaxHeaderBytes, rest.size())));
  }
  if (length_bytes == 0 || rest[0] != '{') {
    return CorruptFile(fmt::format("{}: the header of {} bytes does not begin with {{", name, length_bytes));
  }
  HeaderHandler handler(name, metadata);
  LS_RETURN_IF_ERROR(ReadJson(rest.first(length_bytes), name + ": header", kLimits, &handler));
  LS_RETURN_IF_ERROR(CheckMetadata(name, *metadata));
  LS_RETURN_IF_ERROR(Place(rest.subspan(length_bytes), name, handler.tensors()));
  tensors->clear();
  for (Stated& s : handler.tensors()) tensors->push_back(std::move(s.tensor));
  return OkStatus();
}

}  // namespace lockstep::model
