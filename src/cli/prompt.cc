#include "cli/prompt.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tokenizer/tokenizer.h"

namespace lockstep::cli {

Result<PromptMaker> PromptMaker::Create(const engine::Engine& engine, PromptMode mode) {
  PromptMaker maker(engine);
  if (mode == PromptMode::kRaw) return maker;
  if (engine.chat_template().empty()) {
    if (mode == PromptMode::kChat) return NotFound("--chat: the model file has no tokenizer.chat_template");
    return maker;
  }
  auto parsed = tokenizer::ChatTemplate::Parse(engine.chat_template());
  if (!parsed.ok()) return parsed.status().WithContext("tokenizer.chat_template");
  maker.chat_ = std::move(parsed).value();
  return maker;
}

Result<std::vector<int32_t>> PromptMaker::FromText(const std::string& text) const {
  if (chat_) return FromTurns({{"user", text}});
  return engine_->tokenizer().Encode(text, {.add_special = true, .parse_special = false});
}

Result<std::vector<int32_t>> PromptMaker::FromTurns(const std::vector<ChatTurn>& turns) const {
  if (!chat_) {
    std::string text;
    for (const ChatTurn& turn : turns) text += turn.content;
    return FromText(text);
  }
  tokenizer::ChatRequest request;
  for (const ChatTurn& turn : turns) request.messages.push_back({turn.role, turn.content, ""});
  const tokenizer::Tokenizer& t = engine_->tokenizer();
  if (t.bos_id() >= 0) request.bos_token = std::string(t.Piece(t.bos_id()));
  if (t.eos_id() >= 0) request.eos_token = std::string(t.Piece(t.eos_id()));
  LS_ASSIGN_OR_RETURN(std::vector<tokenizer::TextPart> parts, chat_->Render(request));
  return t.EncodeParts(parts, true);
}

Result<std::vector<NamedPrompt>> ReadPromptFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return NotFound(fmt::format("--prompts {}: cannot be read", path));
  std::vector<NamedPrompt> prompts;
  std::set<std::string> ids;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto fail = [&](const std::string& why) { return InvalidArgument(fmt::format("{}:{}: {}", path, number, why)); };
    auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) return fail("not a JSON object");
    NamedPrompt prompt;
    auto text = [&json](const char* key, std::string* out) {
      auto it = json.find(key);
      if (it == json.end() || !it->is_string()) return false;
      *out = it->get<std::string>();
      return true;
    };
    if (!text("id", &prompt.id)) prompt.id = fmt::format("line-{}", number);
    if (!ids.insert(prompt.id).second) return fail(fmt::format("the id {} stands twice", prompt.id));
    text("kind", &prompt.kind);
    if (auto messages = json.find("messages"); messages != json.end()) {
      if (!messages->is_array() || messages->empty())
        return fail("\"messages\" must be a list with at least one entry");
      for (const auto& m : *messages) {
        if (!m.is_object() || !m.contains("role") || !m["role"].is_string() || !m.contains("content") ||
            !m["content"].is_string()) {
          return fail("a message needs the strings \"role\" and \"content\"");
        }
        prompt.turns.push_back({m["role"].get<std::string>(), m["content"].get<std::string>()});
      }
    } else if (!text("prompt", &prompt.text)) {
      return fail("needs \"prompt\" or \"messages\"");
    }
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) return InvalidArgument(fmt::format("--prompts {}: holds no prompt", path));
  return prompts;
}

std::vector<NamedPrompt> BuiltInPrompts() {
  auto user = [](const char* id, const char* kind, const char* text) {
    return NamedPrompt{id, kind, "", {{"user", text}}};
  };
  return {
      user("chat", "chat", "Why do ships float although they are made of steel? Explain it to a child."),
      user("code", "code_edit",
           "Repeat this function and rename the variable total to result:\n\ndef average(values):\n    total = 0.0\n"
           "    for value in values:\n        total += value\n    if len(values) == 0:\n        return 0.0\n"
           "    return total / len(values)\n"),
      user("copy", "summary",
           "Copy this text word for word: The lighthouse keeper lit the lamp at six. The lamp burned all night. At six "
           "in the morning the lighthouse keeper put out the lamp and wrote the hours into the book."),
      user("story", "story", "Write a short story about a clock that runs backwards."),
  };
}

}  // namespace lockstep::cli
