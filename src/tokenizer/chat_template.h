// A model's chat template: messages and tools in, the prompt's text out, with the request's own text marked.
//
// Errors:  Parse   kInvalidArgument, kUnsupported as jinja/parser.h: the template's line and the name
//          Render  kInvalidArgument  the template refuses the request (raise_exception: its own text, nothing added); a
//                                    content part that is not text: "messages[i].content[j]: ..."; JSON that is not
//                                    JSON; what jinja/evaluator.h lists
//                  kUnsupported      as jinja/evaluator.h
//          After an error the object stays usable: a render leaves nothing behind.
// Threads: Render from any number of threads
// Cost:    bounded by jinja::Limits
// Source:  transformers' apply_chat_template. Differs: content given as parts is joined for templates that expect a
//          string; a null content is the empty string unless the message has tool_calls; strftime_now exists only when
//          the caller gives a clock.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tokenizer/text_part.h"

namespace lockstep::tokenizer {

namespace jinja {
struct Program;
}

struct ContentPart {
  std::string type;  // "text", or what the request said, e.g. "image_url"
  std::string text;  // of a text part
};

struct ChatMessage {
  std::string role;
  // Null, a string, or a list of parts.
  std::variant<std::monostate, std::string, std::vector<ContentPart>> content;
  // The message's other fields (name, tool_calls, tool_call_id, ...) as a JSON object; empty for none. The fields role
  // and content in it are ignored.
  std::string extra_json;
};

struct ChatRequest {
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  std::string tools_json;   // a JSON array; empty: the template sees none
  std::string kwargs_json;  // a JSON object of further variables, e.g. enable_thinking; empty for none
  std::optional<std::tm> clock;
};

class ChatTemplate {
 public:
  static Result<ChatTemplate> Parse(std::string source);

  // Everything that came from the request is marked as input: roles, contents, names, tools, tool results, kwargs.
  Result<std::vector<TextPart>> Render(const ChatRequest& request) const;

  const std::string& source() const { return source_; }
  // True when the template walks over the parts of a content itself. Otherwise a list of text parts becomes one string:
  // the texts in order, with one newline between neighbours; an empty list becomes the empty string.
  bool takes_parts() const { return takes_parts_; }

 private:
  ChatTemplate() = default;

  std::string source_;
  std::shared_ptr<const jinja::Program> program_;
  bool takes_parts_ = false;
};

// True when the prompt's own text starts with `token`. The caller then adds no start token of its own, so that a prompt
// has one. Input never counts: a user who types the token's text does not write the token.
bool StartsWithToken(const std::vector<TextPart>& prompt, std::string_view token);

}  // namespace lockstep::tokenizer
