// Whether a template walks over the parts of a message's content, or expects a string.
//
// Threads: any
// Cost:    one walk of the tree for each name that is set from a content, at most kMaxPasses
// Source:  the rule is ours: some `for` iterates over `x.content`, x['content'], a variable or parameter called
//          content, or a variable set from one of these, filters and slices included
#pragma once

#include "tokenizer/jinja/ast.h"

namespace lockstep::tokenizer::jinja {

bool IteratesContent(const Program& program);

}  // namespace lockstep::tokenizer::jinja
