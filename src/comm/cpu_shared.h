// The all-reduce of CPU ranks: everyone writes partial sums into shared memory, one SyncWorld, everyone reads all.
//
// Shapes:   a partial [rows, cols] f32, contiguous; 1 to 3 a rank, at most kMaxPartials in all
// Units:    elements for capacities; bytes for the workspace
// Requires: all members create the same workspace over the same area and make the same calls in the same order;
//           exactly one SyncWorld(kAllReduce) between writing and reading a call
// Errors:   kInvalidArgument  Create: the area does not hold the buffers; more partials than there can be
// Threads:  one object a member; the threads of a rank share its partials and split the elements as they like
// Capture:  Create, Bind: Prepare; Begin: Run (no allocation, no wait)
// Order:    the canonical tree above the ranks' shares, by element; bit-identical for every world size
// Cost:     1 barrier; each rank writes its partials once and reads all partials
//
// Two parities of buffers suffice. Call n uses parity n % 2. A rank writes for call n+2 after it has left the SyncWorld
// of call n+1, and every member arrives there only after it has read what it needs of call n (program order). So no
// writer of n+2 meets a reader of n. One parity would not do: the writer of n+1 waits for nobody after the sync of n.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/canonical_tree.h"
#include "base/result.h"

namespace lockstep::comm {

class CpuShared {
 public:
  static constexpr int kMaxPartials = CanonicalTree::kMaxLeaves;  // a partial holds one leaf or more

  // One place in the model where ranks add: its tree and this rank's share. Bound once, in Prepare.
  struct Site {
    TreeProgram top;       // over the partials, in order
    int num_partials = 0;  // of all ranks
    int first_mine = 0;    // this rank's partials are [first_mine, first_mine + num_mine)
    int num_mine = 0;
  };
  static Site Bind(const CanonicalTree& tree, const std::vector<TreeShare>& shares, int rank);

  // What one call reads and writes. Valid until this member's SyncWorld of the next call.
  struct Call {
    std::array<float*, CanonicalTree::kMaxSubtreesPerRank> mine{};  // [num_mine] x [rows, cols], to be written
    std::array<const float*, kMaxPartials> partials{};  // [num_partials] x [rows, cols], to be read after the sync
    int num_mine = 0;
    int num_partials = 0;
    const TreeProgram* top = nullptr;
  };

  // Bytes that Create needs: 2 parities x max_partials x capacity, each partial on its own cache lines.
  static size_t SharedBytes(int max_partials, size_t capacity_elems);
  // `area` is 64-byte aligned shared memory, e.g. a part of Group::shared(). It outlives the object.
  static Result<CpuShared> Create(std::span<std::byte> area, int max_partials, size_t capacity_elems);

  // Opens the next call. The size must fit (LS_CHECK).
  Call Begin(const Site& site, size_t rows, size_t cols);

 private:
  float* base_ = nullptr;
  int max_partials_ = 0;
  size_t capacity_elems_ = 0;
  size_t stride_elems_ = 0;  // fixed by the capacity, never by a call's size: else parities of two sizes would overlap
  uint64_t calls_ = 0;
};

// out[i] = the tree's sum of partials[*][i] for i in [begin, end). For stand-alone use and tests; the model's kernels
// walk the same program fused with residual and norm. out may be one of this rank's own buffers only, not a partial.
void SumPartials(const CpuShared::Call& call, size_t begin, size_t end, float* out);

}  // namespace lockstep::comm
