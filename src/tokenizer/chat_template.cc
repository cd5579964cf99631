#include "tokenizer/chat_template.h"

#include <fmt/format.h>

#include "tokenizer/jinja/content_scan.h"
#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/parser.h"
#include "tokenizer/jinja/print.h"

namespace lockstep::tokenizer {
namespace {

using jinja::Value;

Value InputStr(const std::string& text) {
  return Value::Str(text, /*is_input=*/true);
}
Value Key(const char* name) {
  return Value::Str(std::string(name));
}

Result<Value> MakeContent(const ChatMessage& message, bool takes_parts, bool has_tool_calls) {
  if (const auto* text = std::get_if<std::string>(&message.content)) return InputStr(*text);
  const auto* parts = std::get_if<std::vector<ContentPart>>(&message.content);
  // Templates ask "content is none" of a message that only calls tools; elsewhere a null is no text.
  if (parts == nullptr) return has_tool_calls ? Value::None() : InputStr("");
  std::string joined;
  std::vector<Value> items;
  for (size_t j = 0; j < parts->size(); ++j) {
    const ContentPart& part = (*parts)[j];
    if (part.type != "text") {
      return InvalidArgument(fmt::format("content[{}]: parts of type '{}' are not supported, only text", j, part.type));
    }
    if (j > 0) joined += '\n';
    joined += part.text;
    auto dict = std::make_shared<jinja::DictObject>();
    dict->Set(Key("type"), Value::Str(std::string("text")));
    dict->Set(Key("text"), InputStr(part.text));
    items.push_back(Value::Dict(std::move(dict)));
  }
  return takes_parts ? Value::List(std::move(items)) : InputStr(joined);
}

Result<Value> MakeMessage(const ChatMessage& message, bool takes_parts) {
  auto dict = std::make_shared<jinja::DictObject>();
  dict->Set(Key("role"), InputStr(message.role));
  Value extra;
  bool has_tool_calls = false;
  if (!message.extra_json.empty()) {
    Result<Value> parsed = jinja::FromJson(message.extra_json, /*is_input=*/true);
    if (!parsed.ok()) return parsed.status().WithContext("extra fields");
    if (!parsed->Is(jinja::Kind::kDict)) return InvalidArgument("extra fields: not a JSON object");
    extra = std::move(parsed).value();
    const Value* const calls = extra.dict().Find("tool_calls");
    has_tool_calls = calls != nullptr && jinja::IsTrue(*calls);
  }
  LS_ASSIGN_OR_RETURN(Value content, MakeContent(message, takes_parts, has_tool_calls));
  dict->Set(Key("content"), std::move(content));
  if (extra.Is(jinja::Kind::kDict)) {
    for (const auto& [key, value] : extra.dict().entries) {
      if (key.str() != "role" && key.str() != "content") dict->Set(key, value);
    }
  }
  return Value::Dict(std::move(dict));
}

}  // namespace

Result<ChatTemplate> ChatTemplate::Parse(std::string source) {
  Result<std::shared_ptr<const jinja::Program>> program = jinja::Parse(source);
  if (!program.ok()) return program.status().WithContext("chat template");
  ChatTemplate out;
  out.program_ = std::move(program).value();
  out.takes_parts_ = jinja::IteratesContent(*out.program_);
  out.source_ = std::move(source);
  return out;
}

Result<std::vector<TextPart>> ChatTemplate::Render(const ChatRequest& request) const {
  jinja::Evaluator evaluator(*program_, jinja::Limits());
  std::vector<Value> messages;
  for (size_t i = 0; i < request.messages.size(); ++i) {
    Result<Value> message = MakeMessage(request.messages[i], takes_parts_);
    if (!message.ok()) {
      const Status& status = message.status();
      return Status(status.code(), fmt::format("messages[{}].{}", i, status.message()));
    }
    messages.push_back(std::move(message).value());
  }
  evaluator.SetGlobal("messages", Value::List(std::move(messages)));
  evaluator.SetGlobal("add_generation_prompt", Value::Bool(request.add_generation_prompt));
  evaluator.SetGlobal("bos_token", Value::Str(request.bos_token));
  evaluator.SetGlobal("eos_token", Value::Str(request.eos_token));
  evaluator.SetGlobal("tools", Value::None());
  evaluator.SetGlobal("documents", Value::None());
  if (!request.tools_json.empty()) {
    Result<Value> tools = jinja::FromJson(request.tools_json, /*is_input=*/true);
    if (!tools.ok()) return tools.status().WithContext("tools");
    evaluator.SetGlobal("tools", std::move(tools).value());
  }
  if (!request.kwargs_json.empty()) {
    Result<Value> kwargs = jinja::FromJson(request.kwargs_json, /*is_input=*/true);
    if (!kwargs.ok()) return kwargs.status().WithContext("chat_template_kwargs");
    if (!kwargs->Is(jinja::Kind::kDict)) return InvalidArgument("chat_template_kwargs: not a JSON object");
    for (const auto& [name, value] : kwargs->dict().entries) {
      if (name.str() == "messages" || name.str() == "tools") {
        return InvalidArgument(fmt::format("chat_template_kwargs: '{}' is a field of the request itself", name.str()));
      }
      evaluator.SetGlobal(name.str(), value);
    }
  }
  if (request.clock) evaluator.SetClock(*request.clock);
  LS_ASSIGN_OR_RETURN(const jinja::Text text, evaluator.Run());
  return text.Parts();
}

bool StartsWithToken(const std::vector<TextPart>& prompt, std::string_view token) {
  return !token.empty() && !prompt.empty() && !prompt[0].is_input && prompt[0].text.starts_with(token);
}

}  // namespace lockstep::tokenizer
