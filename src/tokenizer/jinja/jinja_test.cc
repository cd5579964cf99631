// What the goldens cannot say: the words of our errors, and the marks on the output.
#include <gtest/gtest.h>

#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/parser.h"
#include "tokenizer/jinja/print.h"

namespace lockstep::tokenizer::jinja {
namespace {

Result<Text> Render(const std::string& source) {
  LS_ASSIGN_OR_RETURN(const auto program, Parse(source));
  Evaluator evaluator(*program, Limits());
  evaluator.SetGlobal("m", FromJson(R"({"role":"user","content":" a<|end|>b ","n":5,"l":["p","q"]})", true).value());
  return evaluator.Run();
}

// Input in <>, the template's own text in [].
std::string Marks(const std::string& source) {
  const auto text = Render(source);
  if (!text.ok()) return text.status().message();
  std::string out;
  for (const TextPart& part : text->Parts())
    out += (part.is_input ? "<" : "[") + part.text + (part.is_input ? ">" : "]");
  return out;
}

Status Error(const std::string& source) {
  const auto text = Render(source);
  return text.ok() ? OkStatus() : text.status();
}

TEST(JinjaMarks, FollowTheTextThroughOperations) {
  EXPECT_EQ(Marks("x{{ m.content }}y"), "[x]< a<|end|>b >[y]");
  EXPECT_EQ(Marks("{{ '<s>' + m.role + '\\n' + m.content | trim + '</s>' }}"), "[<s>]<user>[\n]<a<|end|>b>[</s>]");
  EXPECT_EQ(Marks("{{ ('[' ~ m.content ~ ']')[1:4] }}"), "< a<>");
  EXPECT_EQ(Marks("{{ m.content.split('<|')[0] ~ 'z' }}"), "< a>[z]");
  EXPECT_EQ(Marks("{{ m.l | join(', ') }}"), "<p>[, ]<q>");
  EXPECT_EQ(Marks("{{ m.content | replace('b', 'X') | upper }}"), "< A<|END|>>[X]< >");
  EXPECT_EQ(Marks("{{ 'a-b' | replace('-', m.role) }}"), "[a]<user>[b]");
  EXPECT_EQ(Marks("{% set q %}t{{ m.role }}{% endset %}{{ q }}"), "[t]<user>");
  EXPECT_EQ(Marks("{% macro f(a) %}({{ a }}){% endmacro %}{{ f(m.role) }}"), "[(]<user>[)]");
  EXPECT_EQ(Marks("{% for c in m.role %}{{ c }}.{% endfor %}"), "<u>[.]<s>[.]<e>[.]<r>[.]");
  EXPECT_EQ(Marks("{% filter upper %}a{{ m.role }}{% endfilter %}"), "[A]<USER>");
  EXPECT_EQ(Marks("{{ m.role * 2 ~ 'z' * 2 }}"), "<useruser>[zz]");
  EXPECT_EQ(Marks("{% for k, v in m.items() %}{% if loop.first %}{{ k }}={{ v }}{% endif %}{% endfor %}"),
            "<role>[=]<user>");
}

TEST(JinjaMarks, WhatCannotKeepTrackIsInputWhenAnyPartWas) {
  EXPECT_EQ(Marks("{{ {'k': m.role} | tojson }}"), "<{\"k\": \"user\"}>");
  EXPECT_EQ(Marks("{{ ['<s>', m.role] }}"), "<['<s>', 'user']>");
  EXPECT_EQ(Marks("{{ ['<s>'] }}{{ {'k': 1} | tojson }}"), "[['<s>']{\"k\": 1}]");
  EXPECT_EQ(Marks("{{ m.n }}|{{ m.n + 1 }}|{{ 1 + 1 }}"), "<5>[|]<6>[|2]");
}

TEST(JinjaErrors, NameTheLineAndTheThing) {
  EXPECT_EQ(Error("a\n{% frobnicate %}x{% endfrobnicate %}").message(), "template line 2: unknown tag 'frobnicate'");
  EXPECT_EQ(Error("a\n\n{{ x | nosuch }}").message(), "template line 3: unknown filter 'nosuch'");
  EXPECT_EQ(Error("{{ x is nosuch }}").message(), "template line 1: unknown test 'nosuch'");
  EXPECT_EQ(Error("{{ x | nosuch }}").code(), StatusCode::kUnsupported);
  EXPECT_EQ(Error("\n{{ nofunc(1) }}").message(), "template line 2: 'nofunc' is undefined");
  EXPECT_EQ(Error("{{ m.nope.x }}").message(), "template line 1: 'dict object' has no attribute 'nope'");
  EXPECT_EQ(Error("\n\n{% if x %}\n{% for i in y %}").message(),
            "template line 4: the block that begins here has no 'endfor'");
  EXPECT_EQ(Error("{{ m | trim(zz=1) }}").message(), "template line 1: 'trim' takes no argument 'zz'");
  EXPECT_EQ(Error("{{ m | replace('a') }}").message(), "template line 1: 'replace' needs the argument 'new'");
  EXPECT_EQ(Error("{% raw %}a").message(), "template line 1: this 'raw' block has no 'endraw'");
  EXPECT_EQ(Error("{{ 'a' % 1 }}").code(), StatusCode::kUnsupported);
  EXPECT_FALSE(Error("{{ m[] }}").ok());
}

TEST(JinjaErrors, OfAStringNameTheLineOfItsBeginningOrOfTheEscape) {
  EXPECT_EQ(Error("\n{{ 'a\nb }}").message(), "template line 2: this string has no end");
  EXPECT_EQ(Error("\n{{ 'a\nb\\xZ' }}").message(), "template line 3: the escape \\x needs 2 hexadecimal digits");
  EXPECT_EQ(Error("{{ 'a\n' + 99999999999999999999 }}").message(),
            "template line 2: the integer 99999999999999999999 does not fit 64 bits");
}

TEST(JinjaErrors, ABranchThatDoesNotRunIsStillParsed) {
  EXPECT_EQ(Error("{% if false %}{{ x | nosuch }}{% endif %}").message(), "template line 1: unknown filter 'nosuch'");
}

TEST(JinjaErrors, RaiseExceptionCarriesOnlyTheTemplatesText) {
  const Status status = Error("{{ raise_exception('No ' ~ m.role) }}");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "No user");
}

TEST(JinjaErrors, WithoutAClockThereIsNoStrftimeNow) {
  EXPECT_EQ(Marks("{{ strftime_now is defined }}"), "[False]");
  EXPECT_EQ(Error("{{ strftime_now('%Y') }}").message(), "template line 1: 'strftime_now' is undefined");
}

}  // namespace
}  // namespace lockstep::tokenizer::jinja
