// How a model is cut for tensor parallelism: which heads, ffn columns and vocabulary rows each rank owns, and the
// canonical trees of the two places where ranks add.
//
// Shapes:   the letters of docs/glossary.md
// Units:    heads, elements of F, rows of the vocabulary
// Errors:   kInvalidArgument  the model cannot be cut for this many ranks; names the quantity and the sizes that work
// Threads:  values
// Order:    the trees depend on the model alone, never on the world size (docs/numerics.md, 3)
#pragma once

#include <vector>

#include "base/canonical_tree.h"
#include "base/result.h"
#include "model/config.h"

namespace lockstep::model {

// One rank's part. Query heads and F are exact cuts; a kv head whose group of query heads is split between two ranks
// is computed and kept by both.
struct RankShard {
  UnitRange q_heads = {};
  UnitRange kv_heads = {};
  UnitRange ffn = {};    // elements of F
  UnitRange vocab = {};  // rows; begins at a multiple of 16
  TreeShare attention;   // in units of head groups
  TreeShare mlp;         // in units of 32 elements of F
  UnitRange fc = {};     // of a draft head: inputs of fc
  TreeShare taps = {};   // of a draft head: in units of 32 inputs of fc
};

struct ShardPlan {
  int world_size;
  int heads_per_unit;  // the smallest group of query heads whose outputs are a multiple of 32 elements
  CanonicalTree attention_tree;
  CanonicalTree mlp_tree;
  CanonicalTree taps_tree;  // of a draft head; else of one unit, and nobody looks at it
  std::vector<RankShard> ranks;
};

Result<ShardPlan> MakeShardPlan(const ModelConfig& config, int world_size);

// The same for a draft, which runs on its target's ranks: as many of them share it as can, and the others have no part of
// it (they keep step, and compute the norms for themselves).
Result<ShardPlan> MakeDraftPlan(const ModelConfig& config, int world_size);

// The world sizes from 1 to 8 that MakeShardPlan accepts, as text: "1, 2, 3".
std::string SupportedWorldSizes(const ModelConfig& config);

}  // namespace lockstep::model
