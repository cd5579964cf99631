// The tree of a parsed template.
//
// Requires: built by Parse only, which bounds depth; every walk may recurse
// Threads:  read-only after Parse, so any
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/jinja/value.h"

namespace lockstep::tokenizer::jinja {

struct Builtin;
struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind : uint8_t {
  kLiteral,    // literal
  kName,       // name
  kList,       // children
  kTuple,      // children
  kDict,       // children: key, value, key, value, ...
  kAttribute,  // children[0].name
  kSubscript,  // children[0][children[1]]
  kSlice,      // children[0][children[1]:children[2]:children[3]]; any of the last three may be null
  kCall,       // children[0](args)
  kFilter,     // children[0] | builtin(args); children[0] is null inside a filter block
  kTest,       // children[0] is builtin(args); negated by a kNot around it
  kUnary,      // name ('-', '+', 'not') of children[0]
  kBinary,     // children[0] name children[1]; name is an arithmetic operator
  kConcat,     // children joined by ~
  kCompare,    // children[0] ops[0] children[1] ops[1] children[2] ...
  kAnd,
  kOr,           // children[0], children[1]
  kConditional,  // children[0] if children[1] else children[2]; the last may be null
};

struct Argument {
  enum class Form : uint8_t { kPositional, kNamed, kSpreadList, kSpreadDict };
  Form form = Form::kPositional;
  std::string name;
  ExprPtr value;
};

struct Expr {
  ExprKind kind = ExprKind::kLiteral;
  int line = 1;
  uint32_t depth = 1;
  std::string name;
  Value literal;
  std::vector<ExprPtr> children;
  std::vector<std::string> ops;
  std::vector<Argument> args;
  const Builtin* builtin = nullptr;
};

enum class StmtKind : uint8_t {
  kText,      // text
  kPrint,     // expr
  kIf,        // branches; a null condition is the else
  kFor,       // targets in expr if condition; body; else_body
  kSet,       // targets[0] = expr
  kSetBlock,  // targets[0] = body, then the filters of expr (null for none)
  kMacro,     // name(params); body
  kCall,      // expr is the call; params and body are the caller
  kFilter,    // body through expr
  kWith,      // names = values; body
  kScope,     // body with a scope of its own: generation
  kBreak,
  kContinue,
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct Branch {
  ExprPtr condition;
  Body body;
};

// A macro's or a caller's parameter.
struct Param {
  std::string name;
  ExprPtr fallback;  // null when required
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 1;
  std::string name;
  Text text;
  ExprPtr target;  // kFor, kSet, kSetBlock: a kName, a kTuple of targets, or a kAttribute of a name (namespace)
  ExprPtr expr;
  ExprPtr condition;  // kFor's filter
  std::vector<Branch> branches;
  std::vector<Param> params;
  Body body;
  Body else_body;
};

struct Program {
  Body body;
};

}  // namespace lockstep::tokenizer::jinja
