// Byte-level BPE: joins the bytes of a word, lowest merge rank first, leftmost among equals.
//
// Requires: all ids in merges and byte_ids are ids of the vocabulary (CheckSpec sees to it)
// Threads:  const after construction; one Scratch a thread
// Cost:     O(n log n) in the bytes of the word: a heap of candidate pairs over a linked list
// Source:   the order of Hugging Face's tokenizers (models/bpe/word.rs), so that ids are equal
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::tokenizer {

class Bpe {
 public:
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t result;
  };

  // Memory that Encode reuses from word to word, and a count of its work for tests.
  class Scratch {
   public:
    uint64_t num_candidates() const { return num_candidates_; }  // pairs that entered the heap

   private:
    friend class Bpe;
    struct Symbol {
      int32_t id;  // -1 = merged into the one before it
      int32_t prev_idx;
      int32_t next_idx;
    };
    std::vector<Symbol> symbols_;
    std::vector<uint64_t> heap_;  // rank << 32 | index of the left symbol, the least in front
    uint64_t num_candidates_ = 0;
  };

  // byte_ids: the token of each byte, -1 = none. merges: by rank; of equal pairs the last one counts, as in Hugging
  // Face's map.
  Bpe(const std::array<int32_t, 256>& byte_ids, std::span<const Merge> merges);

  // Appends the ids of `word`. A byte without a token is left out and its neighbours become adjacent, which is what
  // Hugging Face does without an unk_token. Requires word.size() < 2^31.
  void Encode(std::string_view word, Scratch* scratch, std::vector<int32_t>* ids) const;

 private:
  struct Slot {
    uint64_t pair;  // kFree or left << 32 | right
    uint32_t rank;
    int32_t result;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};

  size_t SlotOf(uint64_t pair) const;
  bool AddCandidate(int32_t left_idx, Scratch* scratch) const;

  std::array<int32_t, 256> byte_ids_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
};

}  // namespace lockstep::tokenizer
