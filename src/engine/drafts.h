// The draft head and the draft model that an engine was given, checked and ready to run beside its target.
//
// Errors:  kNotFound         no such file or folder
//          kCorruptFile, kUnsupported   as the formats say
//          kInvalidArgument  a draft for another model: another vocabulary, hidden size or tokenizer; names what differs
// Threads: Load by one thread; then constants
// Capture: Prepare
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"
#include "model/formats/weight_source.h"

namespace lockstep::engine {

struct EngineOptions;

struct LoadedDrafts {
  std::shared_ptr<const model::WeightSource> head_source, model_source;  // null: none
  bool shipped = false;                                                  // the head came with the program
  int head = -1, model = -1;  // their numbers in step::StepOptions::drafts; -1: none
};

// What options name (--draft-model). Without a head, the one that is shipped for this target, if there is one and it is
// wanted.
Result<LoadedDrafts> LoadDrafts(const EngineOptions& options, const std::shared_ptr<const model::WeightSource>& target);

// The drafters that a request of this kind chooses from, in the governor's order: cheaper ones first.
std::vector<Drafter> DraftersOf(Drafter drafter, const LoadedDrafts& loaded);

}  // namespace lockstep::engine
