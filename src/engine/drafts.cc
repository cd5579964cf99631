#include "engine/drafts.h"

#include <fmt/format.h>

#include "engine/engine.h"
#include "engine/same_tokenizer.h"
#include "engine/shipped_heads.h"
#include "model/formats/eagle3_head.h"
#include "model/formats/gguf.h"

namespace lockstep::engine {
namespace {

// The draft reads the target's ids, and its proposals are taken as such.
Status CheckDraftModel(const EngineOptions& o, const model::WeightSource& draft, const model::WeightSource& target) {
  if (draft.gguf() == nullptr || target.gguf() == nullptr)
    return Unsupported(fmt::format("draft model {}: draft and target must be GGUF files", o.draft_model));
  auto difference = TokenizerDifference(*draft.gguf(), *target.gguf());
  if (!difference.ok()) return difference.status().WithContext(fmt::format("draft model {}", o.draft_model));
  if (!difference->empty()) {
    return InvalidArgument(
        fmt::format("draft model {} has another tokenizer than {}: {}", o.draft_model, o.model_path, *difference));
  }
  for (const model::WeightSource* source : {&draft, &target}) {  // megabytes that nobody reads again
    for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
      if (const model::GgufValue* value = source->gguf()->FindValue(key)) source->Drop(value->payload);
    }
  }
  return OkStatus();
}

}  // namespace

Result<LoadedDrafts> LoadDrafts(const EngineOptions& o, const std::shared_ptr<const model::WeightSource>& target) {
  LoadedDrafts drafts;
  std::string head_path = o.draft_head;
  if (!o.draft_model.empty()) {
    auto source = model::OpenGgufWeights(o.draft_model);
    if (!source.ok()) return source.status().WithContext("draft model");
    drafts.model_source = std::move(source).value();
    LS_RETURN_IF_ERROR(CheckDraftModel(o, *drafts.model_source, *target));
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
