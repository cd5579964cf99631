#include <algorithm>

#include <fmt/format.h>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/parser.h"

namespace lockstep::tokenizer::jinja {
namespace {

const char* const kCompareOps[] = {"==", "!=", "<", "<=", ">", ">="};

}  // namespace

ExprPtr Parser::Make(ExprKind kind, std::string name) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = Now().line;
  expr->name = std::move(name);
  return expr;
}

void Parser::Adopt(Expr* parent, ExprPtr child) {
  if (child != nullptr) {
    parent->depth = std::max(parent->depth, child->depth + 1);
    if (parent->depth > kMaxTreeDepth) Fail(fmt::format("an expression is deeper than {} levels", kMaxTreeDepth));
  }
  parent->children.push_back(std::move(child));
}

ExprPtr Parser::Binary(ExprKind kind, std::string op, ExprPtr left, ExprPtr right) {
  ExprPtr node = Make(kind, std::move(op));
  Adopt(node.get(), std::move(left));
  Adopt(node.get(), std::move(right));
  return node;
}

ExprPtr Parser::ParseExpr(bool allows_conditional) {
  DepthGuard guard(this);
  if (failed()) return Make(ExprKind::kLiteral);
  ExprPtr node = ParseOr();
  while (allows_conditional && TakeName("if")) {
    ExprPtr conditional = Make(ExprKind::kConditional);
    Adopt(conditional.get(), std::move(node));
    Adopt(conditional.get(), ParseOr());
    Adopt(conditional.get(), TakeName("else") ? ParseExpr() : nullptr);
    node = std::move(conditional);
  }
  return node;
}

// "a, b" without parentheses is a tuple where a statement takes a value.
ExprPtr Parser::ParseTupleOrExpr(bool allows_conditional) {
  ExprPtr first = ParseExpr(allows_conditional);
  if (!IsOp(",")) return first;
  ExprPtr tuple = Make(ExprKind::kTuple);
  Adopt(tuple.get(), std::move(first));
  while (TakeOp(",")) {
    const TokenKind kind = Now().kind;
    if (kind == TokenKind::kPrintEnd || kind == TokenKind::kBlockEnd || IsOp(")")) break;
    Adopt(tuple.get(), ParseExpr(allows_conditional));
  }
  return tuple;
}

// Operators of one precedence, which associate to the left: `operand` parses what binds tighter.
ExprPtr Parser::ParseLevel(ExprKind kind, std::initializer_list<const char*> ops, ExprPtr (Parser::*operand)()) {
  ExprPtr left = (this->*operand)();
  while (!failed()) {
    const auto op = std::find_if(ops.begin(), ops.end(), [this](const char* o) { return IsOp(o) || IsName(o); });
    if (op == ops.end()) break;
    Next();
    left = Binary(kind, *op, std::move(left), (this->*operand)());
  }
  return left;
}

ExprPtr Parser::ParseOr() {
  return ParseLevel(ExprKind::kOr, {"or"}, &Parser::ParseAnd);
}

ExprPtr Parser::ParseAnd() {
  return ParseLevel(ExprKind::kAnd, {"and"}, &Parser::ParseNot);
}

ExprPtr Parser::ParseNot() {
  if (!TakeName("not")) return ParseCompare();
  DepthGuard guard(this);
  ExprPtr node = Make(ExprKind::kUnary, "not");
  if (!failed()) Adopt(node.get(), ParseNot());
  return node;
}

ExprPtr Parser::ParseCompare() {
  ExprPtr first = ParseSum();
  ExprPtr chain;
  while (!failed()) {
    std::string op;
    for (const char* candidate : kCompareOps) {
      if (IsOp(candidate)) op = candidate;
    }
    if (IsName("in")) op = "in";
    if (IsName("not") && Ahead().kind == TokenKind::kName && Ahead().text == "in") {
      op = "not in";
      Next();
    }
    if (op.empty()) break;
    Next();
    if (chain == nullptr) {
      chain = Make(ExprKind::kCompare);
      Adopt(chain.get(), std::move(first));
    }
    chain->ops.push_back(op);
    Adopt(chain.get(), ParseSum());
  }
  return chain != nullptr ? std::move(chain) : std::move(first);
}

ExprPtr Parser::ParseSum() {
  return ParseLevel(ExprKind::kBinary, {"+", "-"}, &Parser::ParseConcat);
}

ExprPtr Parser::ParseConcat() {
  ExprPtr first = ParseProduct();
  if (!IsOp("~")) return first;
  ExprPtr node = Make(ExprKind::kConcat);
  Adopt(node.get(), std::move(first));
  while (TakeOp("~")) Adopt(node.get(), ParseProduct());
  return node;
}

ExprPtr Parser::ParseProduct() {
  return ParseLevel(ExprKind::kBinary, {"*", "/", "//", "%"}, &Parser::ParsePower);
}

ExprPtr Parser::ParsePower() {
  ExprPtr left = ParseUnary();
  while (TakeOp("**")) left = Binary(ExprKind::kBinary, "**", std::move(left), ParseUnary());
  return left;
}

ExprPtr Parser::ParseUnary(bool with_filter) {
  DepthGuard guard(this);
  if (failed()) return Make(ExprKind::kLiteral);
  ExprPtr node;
  if (IsOp("-") || IsOp("+")) {
    node = Make(ExprKind::kUnary, Now().text);
    Next();
    Adopt(node.get(), ParseUnary(/*with_filter=*/false));
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  return with_filter ? ParseFilters(std::move(node)) : std::move(node);
}

ExprPtr Parser::ParsePrimary() {
  const Token& token = Now();
  ExprPtr node = Make(ExprKind::kLiteral);
  switch (token.kind) {
    case TokenKind::kName:
      if (token.text == "true" || token.text == "True") {
        node->literal = Value::Bool(true);
      } else if (token.text == "false" || token.text == "False") {
        node->literal = Value::Bool(false);
      } else if (token.text == "none" || token.text == "None") {
        node->literal = Value::None();
      } else {
        node->kind = ExprKind::kName;
        node->name = token.text;
      }
      Next();
      return node;
    case TokenKind::kInt:
      node->literal = Value::Int(token.int_value);
      Next();
      return node;
    case TokenKind::kFloat:
      node->literal = Value::Float(token.float_value);
      Next();
      return node;
    case TokenKind::kString: {
      std::string text = token.text;
      Next();
      while (Now().kind == TokenKind::kString) {  // neighbours are one string, as in Python
        text += Now().text;
        Next();
      }
      node->literal = Value::Str(std::move(text));
      return node;
    }
    default:
      break;
  }
  if (IsOp("(")) return ParseParenthesised();
  if (IsOp("[")) return ParseListLiteral();
  if (IsOp("{")) return ParseDict();
  Fail(fmt::format("expected a value, got {}", Describe(token)));
  return node;
}

ExprPtr Parser::ParseParenthesised() {
  ExpectOp("(");
  if (TakeOp(")")) return Make(ExprKind::kTuple);
  ExprPtr node = ParseTupleOrExpr();
  ExpectOp(")");
  return node;
}

ExprPtr Parser::ParseListLiteral() {
  ExprPtr node = Make(ExprKind::kList);
  ExpectOp("[");
  while (!failed() && !IsOp("]")) {
    if (!node->children.empty()) ExpectOp(",");
    if (IsOp("]")) break;
    Adopt(node.get(), ParseExpr());
  }
  ExpectOp("]");
  return node;
}

ExprPtr Parser::ParseDict() {
  ExprPtr node = Make(ExprKind::kDict);
  ExpectOp("{");
  while (!failed() && !IsOp("}")) {
    if (!node->children.empty()) ExpectOp(",");
    if (IsOp("}")) break;
    Adopt(node.get(), ParseExpr());
    ExpectOp(":");
    Adopt(node.get(), ParseExpr());
  }
  ExpectOp("}");
  return node;
}

ExprPtr Parser::ParsePostfix(ExprPtr node) {
  while (!failed()) {
    if (TakeOp(".")) {
      ExprPtr outer;
      if (Now().kind == TokenKind::kInt) {  // x.0 is x[0]
        outer = Make(ExprKind::kSubscript);
        ExprPtr index = Make(ExprKind::kLiteral);
        index->literal = Value::Int(Now().int_value);
        Next();
        Adopt(outer.get(), std::move(node));
        Adopt(outer.get(), std::move(index));
      } else {
        outer = Make(ExprKind::kAttribute, ExpectName());
        Adopt(outer.get(), std::move(node));
      }
      node = std::move(outer);
    } else if (IsOp("[")) {
      node = ParseSubscript(std::move(node));
    } else if (IsOp("(")) {
      ExprPtr call = Make(ExprKind::kCall);
      Adopt(call.get(), std::move(node));
      ParseArgs(call.get());
      node = std::move(call);
    } else {
      break;
    }
  }
  return node;
}

ExprPtr Parser::ParseSubscript(ExprPtr node) {
  ExprPtr outer = Make(ExprKind::kSubscript);
  Adopt(outer.get(), std::move(node));
  ExpectOp("[");
  ExprPtr parts[3];
  int num_colons = 0;
  while (!failed() && !IsOp("]")) {
    if (TakeOp(":")) {
      if (++num_colons > 2) Fail("a slice has at most three parts");
    } else if (parts[num_colons] != nullptr) {
      Fail(fmt::format("expected ']', got {}", Describe(Now())));
    } else {
      parts[num_colons] = ParseTupleOrExpr();
    }
  }
  ExpectOp("]");
  if (num_colons > 0) {
    outer->kind = ExprKind::kSlice;
    for (ExprPtr& part : parts) Adopt(outer.get(), std::move(part));
  } else if (parts[0] == nullptr) {
    Fail("a subscript is empty");
  } else {
    Adopt(outer.get(), std::move(parts[0]));
  }
  return outer;
}

void Parser::ParseArgs(Expr* call) {
  ExpectOp("(");
  bool named = false;
  while (!failed() && !IsOp(")")) {
    if (!call->args.empty()) ExpectOp(",");
    if (IsOp(")")) break;
    Argument arg;
    if (TakeOp("*")) {
      arg.form = Argument::Form::kSpreadList;
    } else if (TakeOp("**")) {
      arg.form = Argument::Form::kSpreadDict;
      named = true;
    } else if (Now().kind == TokenKind::kName && Ahead().kind == TokenKind::kOperator && Ahead().text == "=") {
      arg.form = Argument::Form::kNamed;
      arg.name = Now().text;
      named = true;
      Next();
      Next();
    } else if (named) {
      Fail("a positional argument follows a named one");
    }
    arg.value = ParseExpr();
    call->depth = std::max(call->depth, arg.value->depth + 1);
    call->args.push_back(std::move(arg));
  }
  ExpectOp(")");
}

// Filters, tests and further calls, as often as they come. A null node is the body of a filter block.
ExprPtr Parser::ParseFilters(ExprPtr node) {
  while (!failed()) {
    if (TakeOp("|")) {
      node = ParseFilter(std::move(node));
    } else if (node != nullptr && TakeName("is")) {
      node = ParseTest(std::move(node));
    } else if (node != nullptr && IsOp("(")) {
      ExprPtr call = Make(ExprKind::kCall);
      Adopt(call.get(), std::move(node));
      ParseArgs(call.get());
      node = std::move(call);
    } else {
      break;
    }
  }
  return node;
}

ExprPtr Parser::ParseFilter(ExprPtr node) {
  ExprPtr filter = Make(ExprKind::kFilter);
  filter->name = ExpectName();
  Adopt(filter.get(), std::move(node));
  filter->builtin = FindFilter(filter->name);
  if (!failed() && filter->builtin == nullptr) {
    Fail(StatusCode::kUnsupported, filter->line, fmt::format("unknown filter '{}'", filter->name));
  }
  if (IsOp("(")) ParseArgs(filter.get());
  return filter;
}

ExprPtr Parser::ParseTest(ExprPtr node) {
  const bool is_negated = TakeName("not");
  ExprPtr test = Make(ExprKind::kTest);
  test->name = ExpectName();
  Adopt(test.get(), std::move(node));
  test->builtin = FindTest(test->name);
  if (!failed() && test->builtin == nullptr) {
    Fail(StatusCode::kUnsupported, test->line, fmt::format("unknown test '{}'", test->name));
  }
  const TokenKind kind = Now().kind;
  if (IsOp("(")) {
    ParseArgs(test.get());
  } else if (kind == TokenKind::kString || kind == TokenKind::kInt || kind == TokenKind::kFloat || IsOp("[") ||
             IsOp("{") || (kind == TokenKind::kName && !IsName("else") && !IsName("or") && !IsName("and"))) {
    // One argument may follow without parentheses: x is divisibleby 3.
    if (IsName("is")) Fail("tests cannot be chained with 'is'");
    DepthGuard guard(this);
    Argument arg;
    arg.value = failed() ? Make(ExprKind::kLiteral) : ParsePostfix(ParsePrimary());
    test->depth = std::max(test->depth, arg.value->depth + 1);
    test->args.push_back(std::move(arg));
  }
  if (!is_negated) return test;
  ExprPtr negation = Make(ExprKind::kUnary, "not");
  Adopt(negation.get(), std::move(test));
  return negation;
}

}  // namespace lockstep::tokenizer::jinja
