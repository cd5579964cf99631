// The sandbox: what a hostile template or request asks for ends in a Status.
#include <gtest/gtest.h>

#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/parser.h"
#include "tokenizer/jinja/print.h"

namespace lockstep::tokenizer::jinja {
namespace {

Status RenderOnly(const std::string& source) {
  const auto program = Parse(source);
  if (!program.ok()) return program.status();
  Evaluator evaluator(**program, Limits());
  const auto text = evaluator.Run();
  return text.ok() ? OkStatus() : text.status();
}

std::string Times(const std::string& s, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += s;
  return out;
}

void ExpectRefused(const std::string& source, const std::string& reason) {
  const Status status = RenderOnly(source);
  EXPECT_FALSE(status.ok()) << source.substr(0, 80);
  EXPECT_NE(status.message().find(reason), std::string::npos) << source.substr(0, 80) << "\n  " << status.message();
}

constexpr const char* kLoop = "{% for a in range(1000) %}{% for b in range(1000) %}";
constexpr const char* kEnd = "{% endfor %}{% endfor %}";

TEST(Limits, Steps) {
  ExpectRefused(std::string(kLoop) + "{% for c in range(1000) %}{% endfor %}" + kEnd, "steps");
  ExpectRefused("{% macro f() %}{% for a in range(99) %}{{ f() }}{% endfor %}{% endmacro %}{{ f() }}", "recursion");
}

TEST(Limits, OutputAndStrings) {
  ExpectRefused(std::string(kLoop) + "{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' }}" + kEnd, "output is longer");
  ExpectRefused("{{ 'a' * 100000000 }}", "repeated");
  ExpectRefused("{{ 'a' * 9000000000000000000 }}", "repeated");
  ExpectRefused("{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
                "string is longer");
  ExpectRefused("{% set s = 'a' * 1000000 %}{{ s | replace('a', 'b' * 1000) }}", "string is longer");
  ExpectRefused("{% set s = ['a'] * 100000 %}{{ s | join('b' * 1000) }}", "string is longer");
  ExpectRefused("{{ 'a' | indent(1000000000) }}", "width");
}

TEST(Limits, SearchesThatWouldTakeForever) {
  const std::string set = "{% set a = 'a' * 4000000 %}{% set b = 'a' * 2000000 + 'b' %}";
  EXPECT_TRUE(RenderOnly(set + "{{ b in a }}{{ a.find(b) }}{{ a.split(b) | length }}").ok());
  ExpectRefused(set + "{{ a.rfind(b) }}", "steps");
  ExpectRefused(set + "{{ a.rsplit(b, 1) }}", "steps");
  ExpectRefused(set + "{% for i in range(99999) %}{{ a is lower }}{% endfor %}", "steps");
  ExpectRefused(set + "{{ " + Times("a ~ ", 9999) + "a }}", "string is longer");
}

TEST(Limits, RangesAndLists) {
  ExpectRefused("{{ range(100001) | list }}", "range is too large");
  ExpectRefused("{{ range(-9000000000000000000, 9000000000000000000) }}", "range is too large");
  ExpectRefused("{{ [1] * 100001 }}", "repeated");
  ExpectRefused("{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "s");
}

TEST(Limits, SharedValuesThatPrintToMuchMoreThanTheyHold) {
  ExpectRefused(
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      "elements");
  ExpectRefused("{% set ns = namespace(l=[1]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor %}",
                "nested deeper");
  ExpectRefused("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "holds itself");
}

TEST(Limits, DepthOfTheSource) {
  ExpectRefused(Times("{{ ", 1) + Times("(", 5000) + "1" + Times(")", 5000) + " }}", "deeper");
  ExpectRefused("{{ " + Times("[", 5000) + Times("]", 5000) + " }}", "deeper");
  ExpectRefused("{{ " + Times("not ", 5000) + "1 }}", "deeper");
  ExpectRefused("{{ " + Times("-", 5000) + "1 }}", "deeper");
  ExpectRefused("{{ 1" + Times("+1", 5000) + " }}", "deeper");
  ExpectRefused("{{ a" + Times(".b", 5000) + " }}", "deeper");
  ExpectRefused("{{ a" + Times("|trim", 5000) + " }}", "deeper");
  ExpectRefused("{{ a" + Times(" if b else c", 5000) + " }}", "deeper");
  ExpectRefused("{{ a" + Times(" is in b", 5000) + " }}", "deeper");
  ExpectRefused(Times("{% if a %}", 5000), "deeper");
  ExpectRefused("{% for " + Times("(", 5000) + "a" + Times(")", 5000) + " in b %}", "deeper");
}

TEST(Limits, RecursionOfMacros) {
  ExpectRefused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion");
  ExpectRefused("{% macro f(g) %}{{ g(g) }}{% endmacro %}{{ f(f) }}", "recursion");
  ExpectRefused("{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}", "recursion");
}

TEST(Limits, IntegersThatDoNotFit) {
  ExpectRefused("{{ 9223372036854775807 + 1 }}", "64 bits");
  ExpectRefused("{{ (-9223372036854775807 - 1) // -1 }}", "64 bits");
  ExpectRefused("{{ 2 ** 64 }}", "64 bits");
  ExpectRefused("{{ 99999999999999999999 }}", "64 bits");
  EXPECT_TRUE(
      RenderOnly("{{ (-9223372036854775807 - 1) % -1 }}{{ 1 ** 9223372036854775807 }}{{ (-1) ** 9223372036854775807 }}")
          .ok());
}

TEST(Limits, LongChainsFreeWithoutRecursion) {
  EXPECT_TRUE(RenderOnly("{% set ns = namespace(p=none) %}{% for a in range(9) %}{% for i in range(10000) %}"
                         "{% set ns.p = namespace(p=ns.p) %}{% endfor %}{% endfor %}")
                  .ok());
  EXPECT_TRUE(RenderOnly("{% set ns = namespace(p=none) %}{% for i in range(50000) %}{% set q = ns.p %}"
                         "{% macro f() %}{{ q }}{% endmacro %}{% set ns.p = f %}{% endfor %}")
                  .ok());
  ExpectRefused(
      "{% set ns = namespace(p=[1]) %}{% for i in range(50000) %}{% for j in [ns.p] %}{% set ns.p = loop %}"
      "{% endfor %}{% endfor %}",
      "nested deeper");
}

}  // namespace
}  // namespace lockstep::tokenizer::jinja
