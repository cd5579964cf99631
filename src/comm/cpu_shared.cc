#include "comm/cpu_shared.h"

#include <fmt/format.h>

#include "base/bits.h"
#include "base/check.h"

namespace lockstep::comm {
namespace {

// Each partial starts on its own pair of cache lines: two ranks write neighbours at the same time.
constexpr size_t kAlignElems = 128 / sizeof(float);

}  // namespace

CpuShared::Site CpuShared::Bind(const CanonicalTree& tree, const std::vector<TreeShare>& shares, int rank) {
  LS_CHECK(rank >= 0 && rank < static_cast<int>(shares.size()));
  Site site;
  site.top = tree.TopProgram(shares);
  site.num_partials = site.top.num_values();
  site.first_mine = shares[rank].first_partial;
  site.num_mine = static_cast<int>(shares[rank].subtrees.size());
  LS_CHECK_LE(site.num_partials, kMaxPartials);
  LS_CHECK_LE(site.num_mine, CanonicalTree::kMaxSubtreesPerRank);
  return site;
}

size_t CpuShared::SharedBytes(int max_partials, size_t capacity_elems) {
  return 2 * static_cast<size_t>(max_partials) * AlignUp(capacity_elems, kAlignElems) * sizeof(float);
}

Result<CpuShared> CpuShared::Create(std::span<std::byte> area, int max_partials, size_t capacity_elems) {
  if (max_partials < 1 || max_partials > kMaxPartials) {
    return InvalidArgument(
        fmt::format("{} partial sums in an all-reduce: must be 1 to {}", max_partials, kMaxPartials));
  }
  // Bounds the product below; no machine has 2^48 bytes for this.
  if (capacity_elems > (uint64_t{1} << 42)) {
    return InvalidArgument(fmt::format("an all-reduce of {} elements", capacity_elems));
  }
  if (area.size() < SharedBytes(max_partials, capacity_elems)) {
    return InvalidArgument(
        fmt::format("the all-reduce workspace has {} bytes, but {} partials of {} "
                    "elements in two parities need {}",
                    area.size(), max_partials, capacity_elems, SharedBytes(max_partials, capacity_elems)));
  }
  LS_CHECK_EQ(reinterpret_cast<uintptr_t>(area.data()) % 64, uintptr_t{0});
  CpuShared result;
  result.base_ = reinterpret_cast<float*>(area.data());
  result.max_partials_ = max_partials;
  result.capacity_elems_ = capacity_elems;
  result.stride_elems_ = AlignUp(capacity_elems, kAlignElems);
  return result;
}

CpuShared::Call CpuShared::Begin(const Site& site, size_t rows, size_t cols) {
  LS_CHECK(cols == 0 || rows <= capacity_elems_ / cols);
  LS_CHECK_LE(site.num_partials, max_partials_);
  float* parity = base_ + (calls_++ % 2) * max_partials_ * stride_elems_;
  Call call;
  call.num_mine = site.num_mine;
  call.num_partials = site.num_partials;
  call.top = &site.top;
  for (int p = 0; p < site.num_partials; ++p) call.partials[p] = parity + p * stride_elems_;
  for (int p = 0; p < site.num_mine; ++p) call.mine[p] = parity + (site.first_mine + p) * stride_elems_;
  return call;
}

void SumPartials(const CpuShared::Call& call, size_t begin, size_t end, float* out) {
  const std::vector<int>& merges = call.top->merges_after;
  std::array<float, CpuShared::kMaxPartials> stack{};
  for (size_t i = begin; i < end; ++i) {
    int depth = 0;
    for (int p = 0; p < call.num_partials; ++p) {
      stack[depth++] = call.partials[p][i];
      for (int m = 0; m < merges[p]; ++m) {
        --depth;
        stack[depth - 1] += stack[depth];  // lower + upper
      }
    }
    out[i] = stack[0];
  }
}

}  // namespace lockstep::comm
