#include "engine/drafts.h"

#include <fmt/format.h>

#include <filesystem>

#include "engine/engine.h"

namespace lockstep::engine {

Result<LoadedDrafts> LoadDrafts(const EngineOptions& o, const std::shared_ptr<const model::WeightSource>& target) {
  LoadedDrafts drafts;
  if (o.draft_model.empty()) return drafts;
  LS_ASSIGN_OR_RETURN(drafts.model_source, model::OpenGgufWeights(o.draft_model));
  (void)target;
  drafts.model = 0;
  return drafts;
}

std::vector<Drafter> DraftersOf(Drafter drafter, const LoadedDrafts& loaded) {
  if (drafter == Drafter::kNone) return {};
  if (drafter != Drafter::kAuto) return {drafter};
  std::vector<Drafter> all = {Drafter::kNgram};
  if (loaded.head >= 0) all.push_back(Drafter::kEagle3);
  if (loaded.model >= 0) all.push_back(Drafter::kDraft);
  return all;
}

}  // namespace lockstep::engine
