// From what a person typed to prompt tokens: bare text, or a chat in the model's own template.
//
// Errors:   kUnsupported, kInvalidArgument  the template cannot be used or refuses the messages (its own text)
//           kNotFound  --chat, but the model has no template
// Threads:  one caller
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "tokenizer/chat_template.h"

namespace lockstep::cli {

enum class PromptMode { kAuto, kRaw, kChat };

struct ChatTurn {
  std::string role;
  std::string content;
};

class PromptMaker {
 public:
  // The engine outlives the maker. kAuto: a chat if the model has a template.
  static Result<PromptMaker> Create(const engine::Engine& engine, PromptMode mode);

  bool is_chat() const { return chat_.has_value(); }
  // Bare text, or one user message.
  Result<std::vector<int32_t>> FromText(const std::string& text) const;
  Result<std::vector<int32_t>> FromTurns(const std::vector<ChatTurn>& turns) const;

 private:
  explicit PromptMaker(const engine::Engine& engine) : engine_(&engine) {}
  const engine::Engine* engine_;
  std::optional<tokenizer::ChatTemplate> chat_;
};

// A prompt of a prompt file: JSON lines {"id", "kind", "prompt"} or {"id", "kind", "messages"}.
struct NamedPrompt {
  std::string id, kind;
  std::string text;             // of "prompt"
  std::vector<ChatTurn> turns;  // of "messages"
};
Result<std::vector<NamedPrompt>> ReadPromptFile(const std::string& path);
// A few prompts of each kind, for benches without a file.
std::vector<NamedPrompt> BuiltInPrompts();

}  // namespace lockstep::cli
