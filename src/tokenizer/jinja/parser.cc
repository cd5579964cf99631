#include "tokenizer/jinja/parser.h"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::tokenizer::jinja {

Result<std::shared_ptr<const Program>> Parse(const std::string& source) {
  LS_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

Result<std::shared_ptr<const Program>> Parser::Run() {
  auto program = std::make_shared<Program>();
  program->body = ParseBody({});
  if (failed()) return status_;
  return std::shared_ptr<const Program>(std::move(program));
}

void Parser::Fail(StatusCode code, int line, const std::string& what) {
  if (status_.ok()) status_ = Status(code, fmt::format("template line {}: {}", line, what));
}
void Parser::Fail(const std::string& what) {
  Fail(StatusCode::kInvalidArgument, Now().line, what);
}

Parser::DepthGuard::DepthGuard(Parser* parser) : parser_(parser) {
  if (++parser->depth_ > kMaxTreeDepth) {
    parser->Fail(fmt::format("nested deeper than {} levels", kMaxTreeDepth));
  }
}

std::string Parser::Describe(const Token& token) const {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kBlockEnd:
      return "end of tag '%}'";
    case TokenKind::kPrintEnd:
      return "end of expression '}}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInt:
    case TokenKind::kFloat:
      return "a number";
    default:
      return "'" + token.text + "'";
  }
}

bool Parser::TakeOp(const char* op) {
  if (failed() || !IsOp(op)) return false;
  Next();
  return true;
}
bool Parser::TakeName(const char* name) {
  if (failed() || !IsName(name)) return false;
  Next();
  return true;
}
void Parser::ExpectOp(const char* op) {
  if (!TakeOp(op)) Fail(fmt::format("expected '{}', got {}", op, Describe(Now())));
}
std::string Parser::ExpectName() {
  if (Now().kind != TokenKind::kName) {
    Fail(fmt::format("expected a name, got {}", Describe(Now())));
    return "";
  }
  std::string name = Now().text;
  Next();
  return name;
}

// Statements up to a tag of end_tags, whose name becomes the current token. No end tags: up to the template's end.
Body Parser::ParseBody(const std::vector<std::string>& end_tags) {
  Body body;
  DepthGuard guard(this);
  const int open_line = Now().line;
  while (!failed()) {
    const Token& token = Now();
    if (token.kind == TokenKind::kEnd) {
      if (!end_tags.empty()) {
        Fail(StatusCode::kInvalidArgument, open_line,
             fmt::format("the block that begins here has no '{}'", end_tags.back()));
      }
      break;
    }
    if (token.kind == TokenKind::kData) {
      auto stmt = std::make_unique<Stmt>();
      stmt->line = token.line;
      stmt->text = Text(token.text, /*is_input=*/false);
      body.push_back(std::move(stmt));
      Next();
    } else if (token.kind == TokenKind::kPrintBegin) {
      Next();
      auto stmt = std::make_unique<Stmt>();
      stmt->kind = StmtKind::kPrint;
      stmt->line = Now().line;
      stmt->expr = ParseTupleOrExpr();
      if (!failed() && Now().kind != TokenKind::kPrintEnd) {
        Fail(fmt::format("expected '}}}}', got {}", Describe(Now())));
      }
      Next();
      body.push_back(std::move(stmt));
    } else {
      Next();  // kBlockBegin: the lexer emits no other kind at this level
      if (Now().kind == TokenKind::kName && std::find(end_tags.begin(), end_tags.end(), Now().text) != end_tags.end()) {
        break;
      }
      body.push_back(ParseStatement());
      if (!failed() && Now().kind != TokenKind::kBlockEnd) {
        Fail(fmt::format("expected '%}}', got {}", Describe(Now())));
      }
      Next();
    }
  }
  return body;
}

StmtPtr Parser::ParseStatement() {
  const Token tag = Now();
  if (tag.kind != TokenKind::kName) {
    Fail(fmt::format("expected a tag name, got {}", Describe(tag)));
    return std::make_unique<Stmt>();
  }
  Next();
  StmtPtr stmt;
  if (tag.text == "for")
    stmt = ParseFor();
  else if (tag.text == "if")
    stmt = ParseIf();
  else if (tag.text == "set")
    stmt = ParseSet();
  else if (tag.text == "macro")
    stmt = ParseMacro();
  else if (tag.text == "call")
    stmt = ParseCallBlock();
  else if (tag.text == "filter")
    stmt = ParseFilterBlock();
  else if (tag.text == "with")
    stmt = ParseWith();
  else if (tag.text == "generation")
    stmt = ParseGeneration();
  else if (tag.text == "break" || tag.text == "continue") {
    if (num_loops_ == 0) Fail(fmt::format("'{}' outside of a loop", tag.text));
    stmt = std::make_unique<Stmt>();
    stmt->kind = tag.text == "break" ? StmtKind::kBreak : StmtKind::kContinue;
  } else if (tag.text.starts_with("end") || tag.text == "else" || tag.text == "elif") {
    Fail(fmt::format("the tag '{}' closes nothing that is open here", tag.text));
    stmt = std::make_unique<Stmt>();
  } else {
    Fail(StatusCode::kUnsupported, tag.line, fmt::format("unknown tag '{}'", tag.text));
    stmt = std::make_unique<Stmt>();
  }
  stmt->line = tag.line;
  return stmt;
}

// Steps over "%}" after the opening tag's arguments.
void Parser::EndBlock(const std::string& tag) {
  if (failed()) return;
  if (Now().kind != TokenKind::kBlockEnd) {
    Fail(fmt::format("expected '%}}' of the tag '{}', got {}", tag, Describe(Now())));
    return;
  }
  Next();
}

StmtPtr Parser::ParseFor() {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kFor;
  stmt->target = ParseTarget(/*allows_attribute=*/false);
  if (!TakeName("in")) Fail(fmt::format("expected 'in' in a for, got {}", Describe(Now())));
  stmt->expr = ParseTupleOrExpr(/*allows_conditional=*/false);
  if (TakeName("if")) stmt->condition = ParseExpr();
  if (IsName("recursive")) Fail(StatusCode::kUnsupported, Now().line, "recursive for is not supported");
  EndBlock("for");
  ++num_loops_;
  stmt->body = ParseBody({"else", "endfor"});
  --num_loops_;
  if (TakeName("else")) {
    EndBlock("else");
    stmt->else_body = ParseBody({"endfor"});
  }
  TakeName("endfor");
  return stmt;
}

StmtPtr Parser::ParseIf() {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kIf;
  Branch branch;
  branch.condition = ParseTupleOrExpr(/*allows_conditional=*/false);
  EndBlock("if");
  branch.body = ParseBody({"elif", "else", "endif"});
  stmt->branches.push_back(std::move(branch));
  while (!failed() && !IsName("endif")) {
    Branch other;
    if (TakeName("elif")) {
      other.condition = ParseTupleOrExpr(/*allows_conditional=*/false);
      EndBlock("elif");
      other.body = ParseBody({"elif", "else", "endif"});
    } else {
      TakeName("else");
      EndBlock("else");
      other.body = ParseBody({"endif"});
    }
    stmt->branches.push_back(std::move(other));
  }
  TakeName("endif");
  return stmt;
}

StmtPtr Parser::ParseSet() {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kSet;
  stmt->target = ParseTarget(/*allows_attribute=*/true);
  if (TakeOp("=")) {
    stmt->expr = ParseTupleOrExpr();
    return stmt;
  }
  stmt->kind = StmtKind::kSetBlock;
  if (IsOp("|")) stmt->expr = ParseFilters(nullptr);
  EndBlock("set");
  stmt->body = ParseBody({"endset"});
  TakeName("endset");
  return stmt;
}

void Parser::ParseParams(std::vector<Param>* params) {
  ExpectOp("(");
  while (!failed() && !IsOp(")")) {
    if (!params->empty()) ExpectOp(",");
    if (IsOp(")")) break;
    Param param;
    param.name = ExpectName();
    if (TakeOp("=")) {
      param.fallback = ParseExpr();
    } else if (!params->empty() && params->back().fallback != nullptr) {
      Fail(fmt::format("the parameter '{}' without a default follows one with a default", param.name));
    }
    params->push_back(std::move(param));
  }
  ExpectOp(")");
}

StmtPtr Parser::ParseMacro() {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kMacro;
  stmt->name = ExpectName();
  ParseParams(&stmt->params);
  EndBlock("macro");
  const int outer_loops = std::exchange(num_loops_, 0);  // a break in a macro cannot leave the caller's loop
  stmt->body = ParseBody({"endmacro"});
  num_loops_ = outer_loops;
  TakeName("endmacro");
  if (Now().kind == TokenKind::kName) Next();  // Jinja allows the name again
  return stmt;
}

StmtPtr Parser::ParseCallBlock() {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kCall;
  stmt->name = "caller";
  if (IsOp("(")) ParseParams(&stmt->params);
  stmt->expr = ParseExpr();
  if (!failed() && stmt->expr->kind != ExprKind::kCall) Fail("a call block needs a call");
  EndBlock("call");
  const int outer_loops = std::exchange(num_loops_, 0);
  stmt->body = ParseBody({"endcall"});
  num_loops_ = outer_loops;
  TakeName("endcall");
  return stmt;
}

StmtPtr Parser::ParseFilterBlock() {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kFilter;
  // The first filter of the tag has no '|' in front.
  stmt->expr = ParseFilters(ParseFilter(nullptr));
  EndBlock("filter");
  stmt->body = ParseBody({"endfilter"});
  TakeName("endfilter");
  return stmt;
}

StmtPtr Parser::ParseWith() {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kWith;
  while (!failed() && Now().kind != TokenKind::kBlockEnd) {
    if (!stmt->params.empty()) ExpectOp(",");
    Param param;
    param.name = ExpectName();
    ExpectOp("=");
    param.fallback = ParseExpr();
    stmt->params.push_back(std::move(param));
  }
  EndBlock("with");
  stmt->body = ParseBody({"endwith"});
  TakeName("endwith");
  return stmt;
}

// transformers' mark of the assistant's text; the rendered text is the body's.
StmtPtr Parser::ParseGeneration() {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kScope;
  EndBlock("generation");
  stmt->body = ParseBody({"endgeneration"});
  TakeName("endgeneration");
  return stmt;
}

ExprPtr Parser::ParseOneTarget(bool allows_attribute) {
  if (TakeOp("(")) {
    ExprPtr inner = ParseTarget(allows_attribute);
    ExpectOp(")");
    return inner;
  }
  ExprPtr name = Make(ExprKind::kName, ExpectName());
  for (const char* reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (name->name == reserved) Fail(fmt::format("cannot assign to '{}'", reserved));
  }
  if (allows_attribute && TakeOp(".")) {
    ExprPtr attribute = Make(ExprKind::kAttribute, ExpectName());
    Adopt(attribute.get(), std::move(name));
    return attribute;
  }
  return name;
}

ExprPtr Parser::ParseTarget(bool allows_attribute) {
  DepthGuard guard(this);
  if (failed()) return Make(ExprKind::kName);
  ExprPtr first = ParseOneTarget(allows_attribute);
  if (!IsOp(",")) return first;
  ExprPtr tuple = Make(ExprKind::kTuple);
  Adopt(tuple.get(), std::move(first));
  while (TakeOp(",")) {
    if (Now().kind != TokenKind::kName && !IsOp("(")) break;
    if (IsName("in")) break;
    Adopt(tuple.get(), ParseOneTarget(allows_attribute));
  }
  return tuple;
}

}  // namespace lockstep::tokenizer::jinja
