#include "engine/drafts.h"

#include <fmt/format.h>

#include "engine/engine.h"
#include "engine/shipped_heads.h"
#include "model/formats/eagle3_head.h"

namespace lockstep::engine {

Result<LoadedDrafts> LoadDrafts(const EngineOptions& o, const std::shared_ptr<const model::WeightSource>& target) {
  LoadedDrafts drafts;
  std::string head_path = o.draft_head;
  if (!o.draft_model.empty()) {
    LS_ASSIGN_OR_RETURN(drafts.model_source, model::OpenGgufWeights(o.draft_model));
  }
  if (head_path.empty() && o.shipped_head) {
    head_path = FindShippedHead(target->fingerprint());
    drafts.shipped = !head_path.empty();
  }
  int next = 0;
  if (!head_path.empty()) {
    model::HeadOptions head;
    head.weight_dtype = o.draft_dtype;
    LS_ASSIGN_OR_RETURN(drafts.head_source, model::OpenEagle3Head(head_path, *target, head));
    drafts.head = next++;
  }
  if (drafts.model_source) drafts.model = next++;
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
