#include "engine/drafts.h"

#include <fmt/format.h>

#include <filesystem>

#include "engine/engine.h"
#include "model/formats/eagle3_head.h"

namespace lockstep::engine {

Result<LoadedDrafts> LoadDrafts(const EngineOptions& o, const std::shared_ptr<const model::WeightSource>& target) {
  LoadedDrafts drafts;
  if (o.draft_model.empty()) return drafts;
  if (std::filesystem::is_directory(o.draft_model)) {
    model::HeadOptions head;
    head.weight_dtype = o.draft_dtype;
    LS_ASSIGN_OR_RETURN(drafts.head_source, model::OpenEagle3Head(o.draft_model, *target, head));
    drafts.head = 0;
  } else {
    LS_ASSIGN_OR_RETURN(drafts.model_source, model::OpenGgufWeights(o.draft_model));
    drafts.model = 0;
  }
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
