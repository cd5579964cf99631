#include "model/formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

#include "model/formats/gguf.h"
#include "model/formats/safetensors_header.h"

namespace lockstep::model {

Result<std::unique_ptr<Safetensors>> Safetensors::Parse(std::span<const uint8_t> bytes, const std::string& name) {
  std::unique_ptr<Safetensors> file(new Safetensors());
  file->path_ = name;
  file->files_ = {name};
  LS_RETURN_IF_ERROR(ReadSafetensorsHeader(bytes, name, &file->tensors_, &file->metadata_));
  LS_RETURN_IF_ERROR(file->IndexTensors());
  return file;
}

Result<std::unique_ptr<Safetensors>> Safetensors::OpenFile(const std::string& path) {
  LS_ASSIGN_OR_RETURN(auto mapping, MmapFile::Open(path));
  LS_ASSIGN_OR_RETURN(auto file, Parse(mapping->bytes(), path));
  file->mappings_.push_back(std::move(mapping));
  return file;
}

void Safetensors::Append(Safetensors&& part) {
  const auto file_idx = static_cast<uint32_t>(files_.size());
  for (SafetensorsTensor& t : part.tensors_) {
    t.file_idx = file_idx;
    tensors_.push_back(std::move(t));
  }
  files_.push_back(part.path_);
  for (auto& mapping : part.mappings_) mappings_.push_back(std::move(mapping));
  for (auto& entry : part.metadata_) metadata_.push_back(std::move(entry));
}

Status Safetensors::IndexTensors() {
  order_.resize(tensors_.size());
  std::iota(order_.begin(), order_.end(), 0u);
  std::sort(order_.begin(), order_.end(),
            [&](uint32_t a, uint32_t b) { return std::tie(tensors_[a].name, a) < std::tie(tensors_[b].name, b); });
  for (size_t i = 1; i < order_.size(); ++i) {
    const SafetensorsTensor &a = tensors_[order_[i - 1]], &b = tensors_[order_[i]];
    if (a.name != b.name) continue;
    return a.file_idx == b.file_idx ? Bad(b, "twice in the file") : Bad(b, "also in " + FileOf(a));
  }
  return OkStatus();
}

Status Safetensors::Bad(const SafetensorsTensor& t, const std::string& text) const {
  return CorruptFile(fmt::format("{}: tensor {}: {}", FileOf(t), GgufFile::Shown(t.name), text));
}

const SafetensorsTensor* Safetensors::Find(std::string_view name) const {
  auto it = std::lower_bound(order_.begin(), order_.end(), name,
                             [&](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  return it == order_.end() || tensors_[*it].name != name ? nullptr : &tensors_[*it];
}

const MmapFile* Safetensors::MappingOf(std::span<const uint8_t> data) const {
  auto it = std::find_if(mappings_.begin(), mappings_.end(), [&](const auto& m) { return m->Holds(data); });
  return it == mappings_.end() ? nullptr : it->get();
}

bool Safetensors::Holds(std::span<const uint8_t> data) const {
  return MappingOf(data) != nullptr;
}

void Safetensors::Fetch(std::span<const uint8_t> data) const {
  if (const MmapFile* mapping = MappingOf(data)) mapping->Fetch(data);
}

void Safetensors::Drop(std::span<const uint8_t> data) const {
  if (const MmapFile* mapping = MappingOf(data)) mapping->Drop(data);
}

Result<const SafetensorsTensor*> Safetensors::Get(std::string_view name, std::span<const uint64_t> shape,
                                                  std::initializer_list<std::string_view> types) const {
  const SafetensorsTensor* t = Find(name);
  if (!t) return NotFound(fmt::format("{}: tensor {}: missing", path_, GgufFile::Shown(name)));
  if (std::find(types.begin(), types.end(), t->type->name) == types.end()) {
    return Unsupported(fmt::format("{}: tensor {}: type {}, {} expected", FileOf(*t), GgufFile::Shown(name),
                                   t->type->name, fmt::join(types, " or ")));
  }
  if (!std::equal(shape.begin(), shape.end(), t->shape.begin(), t->shape.end())) {
    return Bad(*t, fmt::format("shape [{}], [{}] expected", fmt::join(t->shape, ", "), fmt::join(shape, ", ")));
  }
  return t;
}

Result<const SafetensorsTensor*> Safetensors::GetFloats(std::string_view name, std::span<const uint64_t> shape) const {
  return Get(name, shape, {"F32", "F16", "BF16"});
}

Result<std::vector<int64_t>> Safetensors::GetInts(std::string_view name, uint64_t num_elems) const {
  LS_ASSIGN_OR_RETURN(const SafetensorsTensor* t, Get(name, {&num_elems, 1}, {"I64", "I32"}));
  std::vector<int64_t> out(num_elems);
  if (t->type->bytes == sizeof(int64_t)) {
    if (t->bytes > 0) std::memcpy(out.data(), t->data, t->bytes);
    return out;
  }
  for (uint64_t i = 0; i < num_elems; ++i) {
    int32_t x;
    std::memcpy(&x, t->data + i * sizeof x, sizeof x);
    out[i] = x;
  }
  return out;
}

Result<std::vector<uint8_t>> Safetensors::GetBools(std::string_view name, uint64_t num_elems) const {
  LS_ASSIGN_OR_RETURN(const SafetensorsTensor* t, Get(name, {&num_elems, 1}, {"BOOL"}));
  for (uint64_t i = 0; i < num_elems; ++i) {
    if (t->data[i] > 1) return Bad(*t, fmt::format("element {} is {}, 0 or 1 expected", i, t->data[i]));
  }
  return std::vector<uint8_t>(t->data, t->data + num_elems);
}

}  // namespace lockstep::model
