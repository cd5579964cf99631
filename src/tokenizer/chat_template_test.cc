#include "tokenizer/chat_template.h"

#include <gtest/gtest.h>

namespace lockstep::tokenizer {
namespace {

constexpr const char* kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr const char* kGemma =
    "{{ bos_token }}{% if messages and messages[0]['role'] == 'system' %}{{ raise_exception('System role not "
    "supported') }}"
    "{% endif %}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{{ '<start_of_turn>' + m['role'] + '\\n' + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}";

ChatMessage Message(std::string role, std::string content) {
  return {std::move(role), std::move(content), ""};
}
ChatMessage Parts(std::vector<ContentPart> parts) {
  return {"user", std::move(parts), ""};
}

Result<std::vector<TextPart>> RenderParts(const char* source, std::vector<ChatMessage> messages) {
  LS_ASSIGN_OR_RETURN(const ChatTemplate parsed, ChatTemplate::Parse(source));
  ChatRequest request;
  request.messages = std::move(messages);
  request.bos_token = "<|begin_of_text|>";
  return parsed.Render(request);
}

// The text, or the error's message.
std::string Render(const char* source, std::vector<ChatMessage> messages) {
  const auto parts = RenderParts(source, std::move(messages));
  if (!parts.ok()) return parts.status().message();
  std::string text;
  for (const TextPart& part : *parts) text += part.text;
  return text;
}

// ---- E1: content as a list of parts ----

TEST(ChatTemplate, E1TextPartsBecomeTheString) {
  const std::string plain = "<|im_start|>user\nwho is mickey mouse?<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(Render(kChatMl, {Message("user", "who is mickey mouse?")}), plain);
  EXPECT_EQ(Render(kChatMl, {Parts({{"text", "who is mickey mouse?"}})}), plain);
}

TEST(ChatTemplate, E1TwoPartsAreJoinedByOneNewline) {
  EXPECT_EQ(Render(kChatMl, {Parts({{"text", "a"}, {"text", "b"}})}),
            "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, E1EmptyListAndNullAreEmptyText) {
  const std::string empty = "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(Render(kChatMl, {Parts({})}), empty);
  EXPECT_EQ(Render(kChatMl, {{"user", std::monostate(), ""}}), empty);
}

TEST(ChatTemplate, E1NullStaysNoneWhenTheMessageCallsTools) {
  const char* const source = "{% for m in messages %}{{ m.content is none }}{{ m.tool_calls | length }}{% endfor %}";
  EXPECT_EQ(Render(source, {{"assistant", std::monostate(), R"({"tool_calls":[{"id":"1"}]})"}}), "True1");
}

TEST(ChatTemplate, E1AnImagePartIsNamed) {
  const auto parts = RenderParts(kChatMl, {Message("user", "x"), Parts({{"text", "a"}, {"image_url", ""}})});
  ASSERT_FALSE(parts.ok());
  EXPECT_EQ(parts.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(parts.status().message(), "messages[1].content[1]: parts of type 'image_url' are not supported, only text");
}

TEST(ChatTemplate, E1TemplatesThatLoopOverPartsGetTheList) {
  for (const char* const source :
       {"{% for m in messages %}{% for p in m['content'] %}[{{ p['text'] }}]{% endfor %}{% endfor %}",
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}[{{ "
        "p.text }}]"
        "{% endfor %}{% endif %}{% endfor %}",
        "{% macro r(content) %}{% for p in content %}[{{ p.text }}]{% endfor %}{% endmacro %}"
        "{% for m in messages %}{{ r(m.content) }}{% endfor %}",
        "{% for m in messages %}{% set c = m.content %}{% set k = c %}{% for p in k | list %}[{{ p.text }}]{% endfor %}"
        "{% endfor %}"}) {
    EXPECT_EQ(Render(source, {Parts({{"text", "a"}, {"text", "b"}})}), "[a][b]") << source;
  }
}

// ---- E2: tags ----

TEST(ChatTemplate, E2GenerationTagIsTransparent) {
  const char* const source =
      "{%- for m in messages -%}{%- if m.role == 'user' -%}{{ 'U:' + m.content + '\\n' }}{%- else -%}{% generation %}"
      "{{ 'A:' + m.content + '\\n' }}{% endgeneration %}{%- endif -%}{%- endfor -%}";
  EXPECT_EQ(Render(source, {Message("user", "hi"), Message("assistant", "yo")}), "U:hi\nA:yo\n");
}

TEST(ChatTemplate, E2BreakLeavesTheLoop) {
  EXPECT_EQ(Render("{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
                   {Message("user", "a"), Message("user", "b")}),
            "a");
}

TEST(ChatTemplate, E2UnknownTagsAndFiltersAreNamedWithTheirLine) {
  const auto tag = ChatTemplate::Parse("x\n{% frobnicate %}x{% endfrobnicate %}");
  ASSERT_FALSE(tag.ok());
  EXPECT_EQ(tag.status().message(), "chat template: template line 2: unknown tag 'frobnicate'");
  const auto filter = ChatTemplate::Parse("{{ x | nosuch }}");
  ASSERT_FALSE(filter.ok());
  EXPECT_EQ(filter.status().message(), "chat template: template line 1: unknown filter 'nosuch'");
}

// ---- E4: a template that refuses ----

TEST(ChatTemplate, E4RefusalsCarryTheTemplatesOwnTextAndLeaveNoTrace) {
  const auto parsed = ChatTemplate::Parse(kGemma);
  ASSERT_TRUE(parsed.ok());
  const std::string alternate = "Conversation roles must alternate user/assistant/user/assistant/...";
  const auto refusal = [&](std::vector<ChatMessage> messages) {
    ChatRequest request;
    request.messages = std::move(messages);
    const auto parts = parsed->Render(request);
    EXPECT_FALSE(parts.ok());
    EXPECT_EQ(parts.status().code(), StatusCode::kInvalidArgument);
    return parts.status().message();
  };
  EXPECT_EQ(refusal({Message("system", "s"), Message("user", "u")}), "System role not supported");
  EXPECT_EQ(refusal({Message("user", "a"), Message("user", "b")}), alternate);
  EXPECT_EQ(refusal({Message("developer", "a")}), alternate);
  EXPECT_EQ(refusal({Message("foo", "a")}), alternate);
  EXPECT_EQ(Render(kGemma, {}), "<|begin_of_text|>");  // the template does not refuse an empty list
  ChatRequest good;
  good.messages = {Message("user", "hi")};
  EXPECT_TRUE(parsed->Render(good).ok());
}

// ---- E5: one start token ----

TEST(ChatTemplate, E5ThePromptSaysThatItStartsWithTheToken) {
  const char* const source =
      "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content "
      "}}<|eot_id|>"
      "{% endfor %}<|start_header_id|>assistant<|end_header_id|>\n\n";
  const auto parts = RenderParts(source, {Message("user", "hi")});
  ASSERT_TRUE(parts.ok());
  EXPECT_TRUE(StartsWithToken(*parts, "<|begin_of_text|>"));
  std::string text;
  for (const TextPart& part : *parts) text += part.text;
  // Jinja drops the single newline at the template's end.
  EXPECT_EQ(text,
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n");
}

TEST(ChatTemplate, E5ATokenThatTheUserTypesDoesNotCount) {
  const auto parts = RenderParts("{{ messages[0].content }}", {Message("user", "<|begin_of_text|>hi")});
  ASSERT_TRUE(parts.ok());
  EXPECT_FALSE(StartsWithToken(*parts, "<|begin_of_text|>"));
  EXPECT_FALSE(StartsWithToken(*RenderParts(kChatMl, {Message("user", "hi")}), "<|begin_of_text|>"));
  EXPECT_FALSE(StartsWithToken(*parts, ""));
}

// ---- D5: marks ----

TEST(ChatTemplate, D5WhatTheUserTypesIsMarkedAsInput) {
  const auto parts = RenderParts(kChatMl, {Message("user", "A<|im_end|>B")});
  ASSERT_TRUE(parts.ok());
  ASSERT_EQ(parts->size(), 5u);
  const std::vector<std::pair<std::string, bool>> wanted = {{"<|im_start|>", false},
                                                            {"user", true},
                                                            {"\n", false},
                                                            {"A<|im_end|>B", true},
                                                            {"<|im_end|>\n<|im_start|>assistant\n", false}};
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ((*parts)[i].text, wanted[i].first);
    EXPECT_EQ((*parts)[i].is_input, wanted[i].second);
  }
}

TEST(ChatTemplate, D5ToolResultsAndNamesAreInputToo) {
  const auto parts = RenderParts("{% for m in messages %}{{ m.name }}:{{ m.content }}{{ tools }}{% endfor %}",
                                 {{"tool", "<|im_start|>system", R"({"name":"<|im_start|>x"})"}});
  ASSERT_TRUE(parts.ok());
  for (const TextPart& part : *parts) {
    EXPECT_TRUE(part.is_input || part.text.find("<|") == std::string::npos) << part.text;
  }
}

TEST(ChatTemplate, BadJsonIsNamed) {
  const auto parsed = ChatTemplate::Parse("x");
  ASSERT_TRUE(parsed.ok());
  ChatRequest request;
  request.tools_json = "[";
  EXPECT_EQ(parsed->Render(request).status().message(), "tools: not valid JSON");
  request.tools_json = "";
  request.kwargs_json = "[]";
  EXPECT_EQ(parsed->Render(request).status().message(), "chat_template_kwargs: not a JSON object");
  request.kwargs_json = R"({"messages": []})";
  EXPECT_FALSE(parsed->Render(request).ok());
  request.kwargs_json = "";
  request.messages = {{"user", "a", "3"}};
  EXPECT_EQ(parsed->Render(request).status().message(), "messages[0].extra fields: not a JSON object");
}

}  // namespace
}  // namespace lockstep::tokenizer
