// Our templates' text against Python's Jinja: tests/golden/chat_templates.json, made by tools/template_golden.py.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tokenizer/chat_template.h"
#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/parser.h"
#include "tokenizer/jinja/print.h"

namespace lockstep::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

std::string ReadFile(const std::string& path) {
  std::ifstream file(std::string(LS_SOURCE_DIR) + "/" + path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const Json& Golden() {
  static const Json golden = Json::parse(ReadFile("tests/golden/chat_templates.json"));
  return golden;
}

std::tm Clock() {  // the tool's CLOCK: Wednesday, 4 March 2026, 05:06:07
  std::tm t{};
  t.tm_year = 126;
  t.tm_mon = 2;
  t.tm_mday = 4;
  t.tm_hour = 5;
  t.tm_min = 6;
  t.tm_sec = 7;
  t.tm_wday = 3;
  t.tm_yday = 62;
  return t;
}

Result<std::string> RenderPiece(const std::string& source) {
  LS_ASSIGN_OR_RETURN(const auto program, jinja::Parse(source));
  jinja::Evaluator evaluator(*program, jinja::Limits());
  for (const auto& [name, value] : Golden()["context"].items()) {
    evaluator.SetGlobal(name, jinja::FromJson(value.dump(), true).value());
  }
  evaluator.SetClock(Clock());
  LS_ASSIGN_OR_RETURN(const jinja::Text text, evaluator.Run());
  return text.bytes();
}

void ExpectOutcome(const Json& wanted, const Result<std::string>& got) {
  if (wanted.contains("text")) {
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_EQ(*got, wanted["text"].get<std::string>());
  } else if (wanted.contains("refusal")) {
    ASSERT_FALSE(got.ok()) << *got;
    EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(got.status().message(), wanted["refusal"].get<std::string>());
  } else {
    ASSERT_FALSE(got.ok()) << "Jinja: " << wanted["error"] << ", ours: " << *got;
    EXPECT_NE(got.status().message().find("template line "), std::string::npos) << got.status().message();
  }
}

TEST(TemplateGolden, PiecesRenderAsInPython) {
  EXPECT_GE(Golden()["pieces"].size(), 150u);
  for (const Json& piece : Golden()["pieces"]) {
    const std::string source = piece["source"].get<std::string>();
    SCOPED_TRACE(source);
    ExpectOutcome(piece, RenderPiece(source));
  }
}

ChatRequest MakeRequest(const Json& json) {
  ChatRequest request;
  for (const Json& m : json["messages"]) {
    ChatMessage message;
    message.role = m["role"].get<std::string>();
    message.content = m["content"].get<std::string>();
    if (m.size() > 2) message.extra_json = m.dump();
    request.messages.push_back(std::move(message));
  }
  request.add_generation_prompt = json.value("add_generation_prompt", true);
  request.bos_token = "<s>";
  request.eos_token = "</s>";
  if (json.contains("tools")) request.tools_json = json["tools"].dump();
  if (json.contains("kwargs")) request.kwargs_json = json["kwargs"].dump();
  request.clock = Clock();
  return request;
}

TEST(TemplateGolden, ChatsRenderAsInPython) {
  EXPECT_GE(Golden()["chats"].size(), 50u);
  for (const Json& chat : Golden()["chats"]) {
    const std::string name = chat["template"].get<std::string>();
    SCOPED_TRACE(name + ": " + chat["request"].dump());
    const auto parsed = ChatTemplate::Parse(ReadFile("tests/golden/templates/" + name + ".jinja"));
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    const auto parts = parsed->Render(MakeRequest(chat["request"]));
    if (!parts.ok()) {
      ExpectOutcome(chat, parts.status());
      continue;
    }
    std::string text;
    for (const TextPart& part : *parts) text += part.text;
    ExpectOutcome(chat, text);
  }
}

}  // namespace
}  // namespace lockstep::tokenizer
