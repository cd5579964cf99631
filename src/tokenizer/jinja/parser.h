// A template's source as a tree. Unknown tags, filters and tests are errors here, never silently dropped.
//
// Errors:  kInvalidArgument  the template's line and what was expected; nested deeper than kMaxTreeDepth
//          kUnsupported      a tag, filter or test that Lockstep does not have: its line and name
// Threads: any
// Cost:    one pass; recursion bounded by kMaxTreeDepth
// Source:  Jinja 3.1's grammar (operator precedence: ~ binds tighter than +, unary minus tighter than **)
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/lexer.h"

namespace lockstep::tokenizer::jinja {

// Levels of expressions and of blocks together. CPython refuses a template at about 100 levels; one level costs the
// parser some 16 frames, so 200 stay far below a thread's 8 MiB of stack, sanitizers included.
inline constexpr uint32_t kMaxTreeDepth = 200;

Result<std::shared_ptr<const Program>> Parse(const std::string& source);

// The two halves of the grammar share this; parser.cc has the statements, parser_expr.cc the expressions. Errors are
// sticky: after the first, every function returns at once and the tree is thrown away.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Result<std::shared_ptr<const Program>> Run();

 private:
  Body ParseBody(const std::vector<std::string>& end_tags);
  StmtPtr ParseStatement();
  StmtPtr ParseFor();
  StmtPtr ParseIf();
  StmtPtr ParseSet();
  StmtPtr ParseMacro();
  StmtPtr ParseCallBlock();
  StmtPtr ParseFilterBlock();
  StmtPtr ParseWith();
  StmtPtr ParseGeneration();
  void ParseParams(std::vector<Param>* params);
  ExprPtr ParseTarget(bool allows_attribute);
  ExprPtr ParseOneTarget(bool allows_attribute);
  void EndBlock(const std::string& tag);

  // Without conditionals where an "if" belongs to the statement: the iterable of a for, the condition of an if.
  ExprPtr ParseExpr(bool allows_conditional = true);
  ExprPtr ParseTupleOrExpr(bool allows_conditional = true);
  ExprPtr ParseLevel(ExprKind kind, std::initializer_list<const char*> ops, ExprPtr (Parser::*operand)());
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filter = true);
  ExprPtr ParsePrimary();
  ExprPtr ParsePostfix(ExprPtr node);
  ExprPtr ParseFilters(ExprPtr node);
  ExprPtr ParseFilter(ExprPtr node);
  ExprPtr ParseTest(ExprPtr node);
  ExprPtr ParseSubscript(ExprPtr node);
  ExprPtr ParseDict();
  ExprPtr ParseListLiteral();
  ExprPtr ParseParenthesised();
  void ParseArgs(Expr* call);

  ExprPtr Make(ExprKind kind, std::string name = "");
  // Adds the child and its depth; an error when the tree becomes too deep (chains such as 1+1+1+... grow to the left).
  void Adopt(Expr* parent, ExprPtr child);
  ExprPtr Binary(ExprKind kind, std::string op, ExprPtr left, ExprPtr right);

  const Token& Now() const { return tokens_[at_]; }
  const Token& Ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void Next() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool IsOp(const char* op) const { return Now().kind == TokenKind::kOperator && Now().text == op; }
  bool IsName(const char* name) const { return Now().kind == TokenKind::kName && Now().text == name; }
  bool TakeOp(const char* op);
  bool TakeName(const char* name);
  void ExpectOp(const char* op);
  std::string ExpectName();
  void Fail(const std::string& what);
  void Fail(StatusCode code, int line, const std::string& what);
  bool failed() const { return !status_.ok(); }
  std::string Describe(const Token& token) const;

  struct DepthGuard {
    explicit DepthGuard(Parser* parser);
    ~DepthGuard() { --parser_->depth_; }
    Parser* parser_;
  };

  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t depth_ = 0;
  int num_loops_ = 0;  // open for blocks of the current macro
  Status status_;
};

}  // namespace lockstep::tokenizer::jinja
