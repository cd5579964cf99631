#include "cli/prompt.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tokenizer/tokenizer.h"

namespace lockstep::cli {
namespace {

// The whole of a file, or of a pipe that somebody writes to.
Result<std::string> ReadText(const std::string& path) {
  // Not blocking, else the open of a pipe without a writer would wait for ever; its end comes at once instead.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return NotFound(std::strerror(errno));
  struct stat info {};
  std::string text;
  Status status;
  if (fstat(fd, &info) != 0 || !(S_ISREG(info.st_mode) || S_ISFIFO(info.st_mode))) {
    status = InvalidArgument("not a file");
  }
  (void)fcntl(fd, F_SETFL, O_RDONLY);  // what a writer has yet to write is waited for
  char buffer[1 << 16];
  while (status.ok()) {
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count == 0) break;
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
    if (count < 0 && errno != EINTR) status = NotFound(std::strerror(errno));
  }
  close(fd);
  LS_RETURN_IF_ERROR(status);
  return text;
}

}  // namespace

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
  auto text = ReadText(path);
  if (!text.ok()) return text.status().WithContext("--prompts " + path);
  std::istringstream file(*text);
  std::vector<NamedPrompt> prompts;
  std::set<std::string> ids;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto fail = [&](const std::string& why) { return InvalidArgument(fmt::format("{}:{}: {}", path, number, why)); };
    auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) return fail("not a JSON object");
    NamedPrompt prompt;
    auto take = [&json](const char* key, std::string* out) {
      auto it = json.find(key);
      if (it == json.end() || !it->is_string()) return false;
      *out = it->get<std::string>();
      return true;
    };
    if (!take("id", &prompt.id)) prompt.id = fmt::format("line-{}", number);
    if (!ids.insert(prompt.id).second) return fail(fmt::format("the id {} stands twice", prompt.id));
    take("kind", &prompt.kind);
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
    } else if (!take("prompt", &prompt.text)) {
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
