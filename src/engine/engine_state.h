// What an engine holds. For engine.cc and engine_create.cc only.
//
// Threads: one caller
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/drafts.h"
#include "engine/engine.h"
#include "engine/prompt_chunks.h"

namespace lockstep::kv {
class PagePool;
}

namespace lockstep::engine {

class Speculation;

// A sequence that this engine runs; several come with the server.
inline constexpr int kSequence = 0;

struct Engine::State {
  State();
  ~State();

  EngineOptions options;
  std::shared_ptr<const model::WeightSource> source;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::string chat_template;
  LoadedDrafts drafts;
  std::unique_ptr<step::StepRunner> runner;
  std::unique_ptr<kv::PagePool> pool;
  std::vector<int32_t> pages;  // of the only sequence
  std::unique_ptr<Speculation> speculation;
  PromptChunks chunks;
};

}  // namespace lockstep::engine
