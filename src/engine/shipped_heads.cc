#include "engine/shipped_heads.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "model/formats/json_config.h"

namespace lockstep::engine {

namespace fs = std::filesystem;

std::string FindHeadIn(const std::string& drafts, const std::string& target_fingerprint) {
  std::error_code error;
  std::vector<fs::path> folders;
  for (fs::directory_iterator it(drafts, error), end; !error && it != end; it.increment(error)) {
    folders.push_back(it->path());
  }
  std::sort(folders.begin(), folders.end());  // the same choice everywhere
  for (const fs::path& folder : folders) {
    const fs::path path = folder / "config.json";
    if (!fs::is_regular_file(path, error)) continue;
    auto config = model::JsonConfig::Open(path.string());
    if (!config.ok() || !config->Has("lockstep_targets")) continue;
    auto targets = config->GetStrings("lockstep_targets");
    if (!targets.ok()) continue;
    if (std::find(targets->begin(), targets->end(), target_fingerprint) != targets->end()) return folder.string();
  }
  return "";
}

std::string FindShippedHead(const std::string& target_fingerprint) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return "";
  const fs::path parent = program.parent_path().parent_path();
  for (const fs::path& drafts : {parent / "drafts", parent / "share" / "lockstep" / "drafts"}) {
    std::string found = FindHeadIn(drafts.string(), target_fingerprint);
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace lockstep::engine
