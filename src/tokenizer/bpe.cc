#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace lockstep::tokenizer {
namespace {

uint64_t PairOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t Mix(uint64_t x) {  // splitmix64's finaliser: neighbouring ids land far apart
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

}  // namespace

Bpe::Bpe(const std::array<int32_t, 256>& byte_ids, std::span<const Merge> merges)
    : byte_ids_(byte_ids), slots_(std::bit_ceil(2 * merges.size() + 2), Slot{kFree, 0, -1}) {
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& m = merges[rank];
    const uint64_t pair = PairOf(m.left, m.right);
    slots_[SlotOf(pair)] = {pair, rank, m.result};
  }
}

// The slot that holds `pair`, or the free one where it would go.
size_t Bpe::SlotOf(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  size_t i = Mix(pair) & mask;
  while (slots_[i].pair != kFree && slots_[i].pair != pair) i = (i + 1) & mask;
  return i;
}

// Appends the pair at `left_idx` to the candidates if a merge joins it; restores no heap order.
bool Bpe::AddCandidate(int32_t left_idx, Scratch* s) const {
  const auto& left = s->symbols_[left_idx];
  if (left.next_idx < 0) return false;
  const Slot& slot = slots_[SlotOf(PairOf(left.id, s->symbols_[left.next_idx].id))];
  if (slot.pair == kFree) return false;
  s->heap_.push_back(uint64_t{slot.rank} << 32 | static_cast<uint32_t>(left_idx));
  ++s->num_candidates_;
  return true;
}

void Bpe::Encode(std::string_view word, Scratch* s, std::vector<int32_t>* ids) const {
  LS_CHECK_LT(word.size(), size_t{1} << 31);
  s->symbols_.clear();
  s->heap_.clear();
  for (char byte : word) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id < 0) continue;
    const auto idx = static_cast<int32_t>(s->symbols_.size());
    s->symbols_.push_back({id, idx - 1, idx + 1});
  }
  if (s->symbols_.empty()) return;
  s->symbols_.back().next_idx = -1;
  const auto num_symbols = static_cast<int32_t>(s->symbols_.size());
  for (int32_t i = 0; i + 1 < num_symbols; ++i) AddCandidate(i, s);
  const std::greater<> least_first;  // std's heaps keep the greatest in front
  std::make_heap(s->heap_.begin(), s->heap_.end(), least_first);
  auto consider = [&](int32_t left_idx) {
    if (AddCandidate(left_idx, s)) std::push_heap(s->heap_.begin(), s->heap_.end(), least_first);
  };

  while (!s->heap_.empty()) {
    std::pop_heap(s->heap_.begin(), s->heap_.end(), least_first);
    const auto rank = static_cast<uint32_t>(s->heap_.back() >> 32);
    const auto left_idx = static_cast<int32_t>(s->heap_.back() & 0xFFFFFFFF);
    s->heap_.pop_back();
    auto& left = s->symbols_[left_idx];
    if (left.id < 0 || left.next_idx < 0) continue;
    auto& right = s->symbols_[left.next_idx];
    // One of the two may have grown since: this is then another pair, with its own candidate.
    const Slot& slot = slots_[SlotOf(PairOf(left.id, right.id))];
    if (slot.pair == kFree || slot.rank != rank) continue;
    left.id = slot.result;
    left.next_idx = right.next_idx;
    right.id = -1;
    if (left.next_idx >= 0) s->symbols_[left.next_idx].prev_idx = left_idx;
    if (left.prev_idx >= 0) consider(left.prev_idx);
    consider(left_idx);
  }
  for (int32_t i = 0; i >= 0; i = s->symbols_[i].next_idx) ids->push_back(s->symbols_[i].id);
}

}  // namespace lockstep::tokenizer
