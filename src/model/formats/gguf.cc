#include "model/formats/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "model/formats/byte_reader.h"
#include "model/formats/gguf_parser.h"

namespace lockstep::model {
namespace {

constexpr size_t kShownBytes = 96;  // longer names are cut in messages, so that a message stays one line

const char* TypeName(GgufValueType t) {
  switch (t) {
    case GgufValueType::kU8:
      return "u8";
    case GgufValueType::kI8:
      return "i8";
    case GgufValueType::kU16:
      return "u16";
    case GgufValueType::kI16:
      return "i16";
    case GgufValueType::kU32:
      return "u32";
    case GgufValueType::kI32:
      return "i32";
    case GgufValueType::kF32:
      return "f32";
    case GgufValueType::kBool:
      return "bool";
    case GgufValueType::kString:
      return "string";
    case GgufValueType::kArray:
      return "array";
    case GgufValueType::kU64:
      return "u64";
    case GgufValueType::kI64:
      return "i64";
    case GgufValueType::kF64:
      return "f64";
  }
  return "?";
}

// Calls `use` with the next number of type `t`; false if `t` is no integer type.
template <typename Use>
bool WithInteger(ByteReader* reader, GgufValueType t, Use&& use) {
  auto read = [&](auto x) { return reader->Read(&x) && use(x); };
  switch (t) {
    case GgufValueType::kU8:
      return read(uint8_t{});
    case GgufValueType::kI8:
      return read(int8_t{});
    case GgufValueType::kU16:
      return read(uint16_t{});
    case GgufValueType::kI16:
      return read(int16_t{});
    case GgufValueType::kU32:
      return read(uint32_t{});
    case GgufValueType::kI32:
      return read(int32_t{});
    case GgufValueType::kU64:
      return read(uint64_t{});
    case GgufValueType::kI64:
      return read(int64_t{});
    default:
      return false;
  }
}

bool IsInteger(GgufValueType t) {
  return t <= GgufValueType::kI32 || t == GgufValueType::kU64 || t == GgufValueType::kI64;
}

}  // namespace

void GgufFile::Fetch(std::span<const uint8_t> data) const {
  for (const auto& mapping : mappings_) {
    if (mapping->Holds(data)) mapping->Fetch(data);
  }
}

void GgufFile::Drop(std::span<const uint8_t> data) const {
  for (const auto& mapping : mappings_) {
    if (mapping->Holds(data)) mapping->Drop(data);
  }
}

std::string GgufFile::Shown(std::string_view text) {
  std::string out;
  for (unsigned char c : text.substr(0, kShownBytes)) {
    if (c >= 0x20 && c < 0x7f) {
      out += static_cast<char>(c);
    } else {
      out += fmt::format("\\x{:02x}", c);
    }
  }
  if (text.size() > kShownBytes) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

Result<std::unique_ptr<GgufFile>> GgufFile::Parse(std::span<const uint8_t> bytes, const std::string& name,
                                                  GgufMode mode) {
  LS_ASSIGN_OR_RETURN(auto file, GgufParser(bytes, name, mode).Run());
  auto count = file->GetUint("split.count");
  if (count.ok() && *count > 1) {
    return Unsupported(fmt::format("{}: one of {} parts of a split model; open it by its path", name, *count));
  }
  return file;
}

const GgufValue* GgufFile::FindValue(std::string_view key) const {
  auto it = std::lower_bound(value_order_.begin(), value_order_.end(), key,
                             [&](uint32_t i, std::string_view k) { return values_[i].key < k; });
  if (it == value_order_.end() || values_[*it].key != key) return nullptr;
  return &values_[*it];
}

Result<const GgufValue*> GgufFile::Need(std::string_view key) const {
  const GgufValue* v = FindValue(key);
  if (!v) return NotFound(fmt::format("{}: key {}: missing", path_, Shown(key)));
  return v;
}

Status GgufFile::WrongType(const GgufValue& v, const char* expected) const {
  std::string type =
      v.type == GgufValueType::kArray ? fmt::format("an array of {}", TypeName(v.elem_type)) : TypeName(v.type);
  return CorruptFile(fmt::format("{}: key {}: is {}, {} expected", path_, Shown(v.key), type, expected));
}

Result<uint64_t> GgufFile::GetUint(std::string_view key) const {
  LS_ASSIGN_OR_RETURN(const GgufValue* v, Need(key));
  ByteReader reader(v->payload);
  uint64_t out = 0;
  bool negative = false;
  bool is_integer = WithInteger(&reader, v->type, [&](auto x) {
    negative = std::is_signed_v<decltype(x)> && x < 0;
    out = static_cast<uint64_t>(x);
    return true;
  });
  if (!is_integer) return WrongType(*v, "an integer");
  if (negative) {
    return CorruptFile(fmt::format("{}: key {}: {} is negative", path_, Shown(key), static_cast<int64_t>(out)));
  }
  return out;
}

Result<double> GgufFile::GetFloat(std::string_view key) const {
  LS_ASSIGN_OR_RETURN(const GgufValue* v, Need(key));
  ByteReader reader(v->payload);
  float f = 0;
  double d = 0;
  if (v->type == GgufValueType::kF32 && reader.Read(&f)) return static_cast<double>(f);
  if (v->type == GgufValueType::kF64 && reader.Read(&d)) return d;
  return WrongType(*v, "f32 or f64");
}

Result<bool> GgufFile::GetBool(std::string_view key) const {
  LS_ASSIGN_OR_RETURN(const GgufValue* v, Need(key));
  if (v->type != GgufValueType::kBool) return WrongType(*v, "bool");
  return v->payload[0] != 0;
}

Result<std::string> GgufFile::GetString(std::string_view key) const {
  LS_ASSIGN_OR_RETURN(const GgufValue* v, Need(key));
  if (v->type != GgufValueType::kString) return WrongType(*v, "a string");
  return std::string(reinterpret_cast<const char*>(v->payload.data()), v->payload.size());
}

uint64_t GgufFile::NumElems(std::string_view key) const {
  const GgufValue* v = FindValue(key);
  return v && v->type == GgufValueType::kArray ? v->num_elems : 0;
}

Result<std::vector<std::string_view>> GgufFile::GetStrings(std::string_view key) const {
  LS_ASSIGN_OR_RETURN(const GgufValue* v, Need(key));
  if (v->type != GgufValueType::kArray || v->elem_type != GgufValueType::kString) {
    return WrongType(*v, "an array of string");
  }
  std::vector<std::string_view> out(v->num_elems);
  ByteReader reader(v->payload);
  for (auto& text : out) LS_CHECK(reader.ReadString(&text));  // the parser walked this very range
  return out;
}

Result<std::vector<int32_t>> GgufFile::GetInts(std::string_view key) const {
  LS_ASSIGN_OR_RETURN(const GgufValue* v, Need(key));
  if (v->type != GgufValueType::kArray || !IsInteger(v->elem_type)) {
    return WrongType(*v, "an array of integers");
  }
  std::vector<int32_t> out(v->num_elems);
  ByteReader reader(v->payload);
  for (size_t i = 0; i < out.size(); ++i) {
    bool fits = WithInteger(&reader, v->elem_type, [&](auto x) {
      out[i] = static_cast<int32_t>(x);
      return std::in_range<int32_t>(x);
    });
    if (!fits) return CorruptFile(fmt::format("{}: key {}: element {} exceeds 32 bits", path_, Shown(key), i));
  }
  return out;
}

Result<std::vector<float>> GgufFile::GetFloats(std::string_view key) const {
  LS_ASSIGN_OR_RETURN(const GgufValue* v, Need(key));
  if (v->type != GgufValueType::kArray || v->elem_type != GgufValueType::kF32) {
    return WrongType(*v, "an array of f32");
  }
  std::vector<float> out(v->num_elems);
  if (!out.empty()) std::memcpy(out.data(), v->payload.data(), out.size() * sizeof(float));
  return out;
}

const GgufTensor* GgufFile::Find(std::string_view name) const {
  auto it = std::lower_bound(tensor_order_.begin(), tensor_order_.end(), name,
                             [&](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  if (it == tensor_order_.end() || tensors_[*it].name != name) return nullptr;
  return &tensors_[*it];
}

Status GgufFile::IndexTensors() {
  tensor_order_.resize(tensors_.size());
  std::iota(tensor_order_.begin(), tensor_order_.end(), 0u);
  std::sort(tensor_order_.begin(), tensor_order_.end(),
            [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  for (size_t i = 1; i < tensor_order_.size(); ++i) {
    if (tensors_[tensor_order_[i - 1]].name == tensors_[tensor_order_[i]].name) {
      return CorruptFile(fmt::format("{}: tensor {}: appears twice", path_, Shown(tensors_[tensor_order_[i]].name)));
    }
  }
  return OkStatus();
}

}  // namespace lockstep::model
