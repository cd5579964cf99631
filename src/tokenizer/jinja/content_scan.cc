#include "tokenizer/jinja/content_scan.h"

#include <set>
#include <string>

namespace lockstep::tokenizer::jinja {
namespace {

constexpr int kMaxPasses = 8;  // a chain of sets longer than this is no chat template

class Scan {
 public:
  void Walk(const Body& body);
  bool found() const { return found_; }
  size_t num_names() const { return names_.size(); }

 private:
  bool IsContent(const Expr* e) const;

  std::set<std::string> names_ = {"content"};
  bool found_ = false;
};

bool Scan::IsContent(const Expr* e) const {
  if (e == nullptr) return false;
  switch (e->kind) {
    case ExprKind::kName:
      return names_.count(e->name) > 0;
    case ExprKind::kAttribute:
      return e->name == "content";
    case ExprKind::kSubscript: {
      const Value& key = e->children[1]->literal;
      return e->children[1]->kind == ExprKind::kLiteral && key.Is(Kind::kString) && key.str() == "content";
    }
    case ExprKind::kFilter:
    case ExprKind::kSlice:
      return IsContent(e->children[0].get());
    case ExprKind::kConditional:
      return IsContent(e->children[0].get()) || IsContent(e->children[2].get());
    default:
      return false;
  }
}

void Scan::Walk(const Body& body) {
  for (const StmtPtr& stmt : body) {
    if (stmt->kind == StmtKind::kFor && IsContent(stmt->expr.get())) found_ = true;
    if (stmt->kind == StmtKind::kSet && stmt->target->kind == ExprKind::kName && IsContent(stmt->expr.get())) {
      names_.insert(stmt->target->name);
    }
    for (const Branch& branch : stmt->branches) Walk(branch.body);
    Walk(stmt->body);
    Walk(stmt->else_body);
  }
}

}  // namespace

bool IteratesContent(const Program& program) {
  Scan scan;
  for (int pass = 0; pass < kMaxPasses && !scan.found(); ++pass) {
    const size_t before = scan.num_names();
    scan.Walk(program.body);
    if (scan.num_names() == before) break;
  }
  return scan.found();
}

}  // namespace lockstep::tokenizer::jinja
