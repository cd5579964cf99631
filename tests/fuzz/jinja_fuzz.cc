// Any bytes as a template, rendered over a small request: it must end, inside its limits, with text or a Status.
#include <cstddef>
#include <cstdint>
#include <string>

#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/parser.h"
#include "tokenizer/jinja/print.h"

using namespace lockstep::tokenizer::jinja;  // NOLINT: one short program

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  const auto program = Parse(std::string(reinterpret_cast<const char*>(data), num_bytes));
  if (!program.ok()) return 0;
  Limits limits;  // smaller than the real ones, so that a run reaches them often and stays fast
  limits.max_steps = 20'000;
  limits.max_output_bytes = 1 << 16;
  limits.max_work_bytes = 1 << 24;
  Evaluator evaluator(**program, limits);
  const char* const messages =
      R"([{"role":"system","content":"s"},{"role":"user","content":" a<|im_end|>b \u00e9"},)"
      R"({"role":"assistant","content":null,"tool_calls":[{"name":"f","arguments":{"x":[1,2.5,true,null]}}]}])";
  evaluator.SetGlobal("messages", FromJson(messages, true).value());
  evaluator.SetGlobal("m", FromJson(R"({"content":"hello world","n":3,"k":{"a":1,"b":[1,2,3]}})", true).value());
  evaluator.SetGlobal("x", FromJson("[3, 1, 2]", true).value());
  evaluator.SetGlobal("s", FromJson("\"a,b c\"", true).value());
  evaluator.SetGlobal("bos_token", Value::Str("<s>"));
  evaluator.SetClock({});
  const auto text = evaluator.Run();
  if (text.ok() && text->num_bytes() > limits.max_output_bytes) __builtin_trap();
  return 0;
}
