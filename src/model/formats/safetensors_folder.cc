// Opening by path: a file, an index with its shards, a folder.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "model/formats/gguf.h"
#include "model/formats/safetensors.h"
#include "model/formats/safetensors_index.h"

namespace lockstep::model {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxShards = 4096;
constexpr const char* kIndexEnding = ".safetensors.index.json";
constexpr const char* kConvert =
    "; pytorch_model.bin is not read; convert it: python3 -c 'import torch, safetensors.torch as s; "
    "s.save_file(torch.load(\"pytorch_model.bin\", map_location=\"cpu\"), \"model.safetensors\")'";

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

Result<std::unique_ptr<Safetensors>> Safetensors::Open(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return OpenFolder(path);
  if (path.ends_with(kIndexEnding)) return OpenIndex(path);
  return OpenFile(path);
}

Result<std::unique_ptr<Safetensors>> Safetensors::OpenFolder(const std::string& path) {
  auto open = [&](const fs::path& file, bool is_index) -> Result<std::unique_ptr<Safetensors>> {
    LS_ASSIGN_OR_RETURN(auto opened, is_index ? OpenIndex(file.string()) : OpenFile(file.string()));
    opened->path_ = path;
    return opened;
  };
  const fs::path folder(path);
  if (Exists(folder / "model.safetensors.index.json")) return open(folder / "model.safetensors.index.json", true);
  if (Exists(folder / "model.safetensors")) return open(folder / "model.safetensors", false);
  std::vector<std::string> found;
  std::error_code error;
  bool has_pickle = false;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".safetensors")) found.push_back(name);
    has_pickle |= name == "pytorch_model.bin";
  }
  if (error) return NotFound(fmt::format("{}: {}", path, error.message()));
  if (found.empty()) {
    return NotFound(fmt::format("{}: no *.safetensors file{}", path, has_pickle ? kConvert : ""));
  }
  if (found.size() > 1) {
    std::sort(found.begin(), found.end());
    return CorruptFile(fmt::format("{}: {} *.safetensors files ({}, ...) and no model.safetensors.index.json", path,
                                   found.size(), GgufFile::Shown(found[0])));
  }
  return open(folder / found[0], false);
}

Result<std::unique_ptr<Safetensors>> Safetensors::OpenIndex(const std::string& path) {
  LS_ASSIGN_OR_RETURN(auto mapping, MmapFile::Open(path));
  LS_ASSIGN_OR_RETURN(SafetensorsIndex index, SafetensorsIndex::Parse(mapping->bytes(), path));
  if (index.files.size() > kMaxShards) {
    return CorruptFile(fmt::format("{}: {} shards, at most {} expected", path, index.files.size(), kMaxShards));
  }
  std::unique_ptr<Safetensors> all(new Safetensors());
  all->path_ = path;
  for (uint32_t i = 0; i < index.files.size(); ++i) {
    const fs::path shard = fs::path(path).parent_path() / index.files[i];
    auto part = OpenFile(shard.string());
    if (!part.ok() && part.status().code() == StatusCode::kNotFound) {
      auto first = std::find_if(index.tensors.begin(), index.tensors.end(), [&](auto& t) { return t.second == i; });
      return NotFound(fmt::format("{} (shard with tensor {})", part.status().message(), GgufFile::Shown(first->first)));
    }
    if (!part.ok()) return part.status();
    all->Append(std::move(**part));
  }
  LS_RETURN_IF_ERROR(all->IndexTensors());
  for (const auto& [name, file_idx] : index.tensors) {
    const SafetensorsTensor* t = all->Find(name);
    if (t && t->file_idx == file_idx) continue;
    return CorruptFile(fmt::format("{}: tensor {}: not in {}, where {} says", all->files_[file_idx],
                                   GgufFile::Shown(name), GgufFile::Shown(index.files[file_idx]), path));
  }
  return all;
}

}  // namespace lockstep::model
