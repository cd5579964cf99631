#include "model/formats/gguf_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "model/formats/gguf_parser.h"

namespace lockstep::model {
namespace {

constexpr uint64_t kMaxParts = 9999;
constexpr size_t kSuffixBytes = sizeof("-00001-of-00003.gguf") - 1;

bool FiveDigits(std::string_view text, uint32_t* out) {
  *out = 0;
  for (char c : text.substr(0, 5)) {
    if (c < '0' || c > '9') return false;
    *out = *out * 10 + static_cast<uint32_t>(c - '0');
  }
  return true;
}

// A renamed part does not say where its siblings are; if exactly one sibling set of this size lies beside it, that is
// the likely answer, and the message can name it.
std::string SuggestFirstPart(const std::string& path, uint64_t count) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path folder = fs::path(path).parent_path();
  std::string found;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, error), end; !error && it != end; it.increment(error)) {
    SplitName name;
    std::string candidate = (folder / it->path().filename()).string();
    if (!SplitName::Parse(candidate, &name) || name.count != count) continue;
    std::string first = name.Path(1);
    if (!found.empty() && found != first) return "";
    found = first;
  }
  return found;
}

Status BadName(const std::string& path, uint64_t number, uint64_t count) {
  std::string first = SuggestFirstPart(path, count);
  std::string wanted = fmt::format("-{:05}-of-{:05}.gguf", number, count);
  return CorruptFile(fmt::format(
      "{}: is part {} of {} of a split model, but its name does not end in {}; {}", path, number, count, wanted,
      first.empty() ? "rename it so that it does, and open any part" : "rename it so that it does, and open " + first));
}

}  // namespace

bool SplitName::Parse(const std::string& path, SplitName* out) {
  if (path.size() <= kSuffixBytes) return false;
  std::string_view suffix = std::string_view(path).substr(path.size() - kSuffixBytes);
  if (suffix[0] != '-' || suffix.substr(6, 4) != "-of-" || suffix.substr(15) != ".gguf") return false;
  if (!FiveDigits(suffix.substr(1), &out->part) || !FiveDigits(suffix.substr(10), &out->count)) return false;
  out->stem = path.substr(0, path.size() - kSuffixBytes);
  return true;
}

std::string SplitName::Path(uint32_t part_number) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, part_number, count);
}

Result<std::unique_ptr<GgufFile>> GgufSplit::OpenOne(const std::string& path, GgufMode mode) {
  LS_ASSIGN_OR_RETURN(auto mapping, MmapFile::Open(path));
  LS_ASSIGN_OR_RETURN(auto file, GgufParser(mapping->bytes(), path, mode).Run());
  file->mappings_.push_back(std::move(mapping));
  return file;
}

Status GgufSplit::CheckPart(const GgufFile& first, const GgufFile& part, uint32_t number) {
  LS_ASSIGN_OR_RETURN(uint64_t no, part.GetUint("split.no"));
  if (no + 1 != number) {
    return CorruptFile(fmt::format("{}: key split.no: is {}, but the file's name says part {} (split.no {})",
                                   part.path(), no, number, number - 1));
  }
  for (const char* key : {"split.count", "split.tensors.count"}) {
    LS_ASSIGN_OR_RETURN(uint64_t a, first.GetUint(key));
    LS_ASSIGN_OR_RETURN(uint64_t b, part.GetUint(key));
    if (a != b) {
      return CorruptFile(fmt::format("{}: key {}: is {}, but {} has {}; parts of different models", part.path(), key, b,
                                     first.path(), a));
    }
  }
  // Later parts usually carry no other keys; what they do carry must agree.
  for (const char* key : {"general.architecture", "general.name"}) {
    auto a = first.GetString(key), b = part.GetString(key);
    if (a.ok() && b.ok() && *a != *b) {
      return CorruptFile(fmt::format("{}: key {}: is {}, but {} has {}; parts of different models", part.path(), key,
                                     GgufFile::Shown(*b), first.path(), GgufFile::Shown(*a)));
    }
  }
  return OkStatus();
}

Status GgufSplit::CheckNames(const std::vector<std::unique_ptr<GgufFile>>& parts) {
  std::vector<std::pair<std::string_view, size_t>> names;  // with the index of the part
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const GgufTensor& t : parts[i]->tensors()) names.emplace_back(t.name, i);
  }
  std::sort(names.begin(), names.end());
  for (size_t i = 1; i < names.size(); ++i) {
    if (names[i].first != names[i - 1].first) continue;
    return CorruptFile(fmt::format("{}: tensor {}: is in {} too; parts of different models",
                                   parts[names[i].second]->path(), GgufFile::Shown(names[i].first),
                                   parts[names[i - 1].second]->path()));
  }
  LS_ASSIGN_OR_RETURN(uint64_t wanted, parts[0]->GetUint("split.tensors.count"));
  if (names.size() != wanted) {
    const auto& last = parts.back()->tensors();
    return CorruptFile(
        fmt::format("{}: the {} parts hold {} tensors, split.tensors.count is {} (last tensor: {}); "
                    "parts of different models",
                    parts[0]->path(), parts.size(), names.size(), wanted,
                    last.empty() ? "none" : GgufFile::Shown(last.back().name)));
  }
  return OkStatus();
}

Result<std::unique_ptr<GgufFile>> GgufSplit::Join(const std::string& path, uint64_t count,
                                                  std::unique_ptr<GgufFile> opened, GgufMode mode) {
  LS_ASSIGN_OR_RETURN(uint64_t no, opened->GetUint("split.no"));
  if (count > kMaxParts || no >= count) {
    return CorruptFile(
        fmt::format("{}: key split.no: part {} of {} (at most {} parts are read)", path, no, count, kMaxParts));
  }
  SplitName name;
  if (!SplitName::Parse(path, &name) || name.part != no + 1 || name.count != count) {
    return BadName(path, no + 1, count);
  }
  std::vector<std::unique_ptr<GgufFile>> parts;
  for (uint32_t number = 1; number <= count; ++number) {
    if (number == no + 1) {
      parts.push_back(std::move(opened));
    } else {
      auto part = OpenOne(name.Path(number), mode);
      if (!part.ok()) {
        std::string after = parts.empty() || parts.back()->tensors().empty()
                                ? "with the metadata and first tensors"
                                : "with the tensors after " + GgufFile::Shown(parts.back()->tensors().back().name);
        return Status(part.status().code(),
                      fmt::format("{} (part {} of {}, {})", part.status().message(), number, count, after));
      }
      parts.push_back(std::move(part).value());
    }
    LS_RETURN_IF_ERROR(CheckPart(*parts.front(), *parts.back(), number));
  }
  LS_RETURN_IF_ERROR(CheckNames(parts));

  std::unique_ptr<GgufFile> all = std::move(parts.front());
  all->path_ = path;
  all->num_parts_ = static_cast<uint32_t>(count);
  for (size_t i = 1; i < parts.size(); ++i) {
    std::move(parts[i]->mappings_.begin(), parts[i]->mappings_.end(), std::back_inserter(all->mappings_));
    std::move(parts[i]->tensors_.begin(), parts[i]->tensors_.end(), std::back_inserter(all->tensors_));
  }
  LS_RETURN_IF_ERROR(all->IndexTensors());
  return all;
}

Result<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path, GgufMode mode) {
  LS_ASSIGN_OR_RETURN(auto file, GgufSplit::OpenOne(path, mode));
  if (!file->Has("split.count")) return file;
  LS_ASSIGN_OR_RETURN(uint64_t count, file->GetUint("split.count"));
  if (count <= 1) return file;
  return GgufSplit::Join(path, count, std::move(file), mode);
}

}  // namespace lockstep::model
