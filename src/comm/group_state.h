// What members share: one mapping made before any fork, at the same address in every rank.
//
// Shapes:  GroupState, then [num_members] MemberSlot, [num_members] VoteSlot, [world_size] DigestSlot, then the
//          caller's area on a page of its own
// Errors:  none here; the first fault's record lies in record_*
// Threads: each word says who writes it; all cross-member words are std::atomic
//
// Who writes what. A member's `world` and `rank` words hold (epoch << 8 | SyncOp) and are stored by that member alone,
// with one epoch more each time, so they cannot collide or run backwards; a 56-bit epoch does not wrap. Anyone reads
// them. `*_sleepers` count those who are parked on the word. The word's low half is the futex word: it changes with
// every arrival, and a waiter would have to sleep through 2^24 of them to take a new value for the old one.
//
// Why no wake-up is lost. The owner does   A1: word.store(new)    A2: read sleepers, wake if not 0
//                         a waiter does    B1: sleepers += 1      B2: read word, park if old
// All four are seq_cst, hence in one total order. If A2 reads 0 then A2 precedes B1, so A1 < A2 < B1 < B2 and B2 reads
// the new word: the waiter does not park. With release/acquire alone A1 may still sit in the owner's store buffer when
// A2 is done (store then load is the one reordering that x86 makes), both read the old values, and the waiter sleeps
// through its wake-up. The full barrier is part of the seq_cst store (xchg on x86); a separate fence would do the
// same, but the thread sanitizer cannot see fences. Between B2 and the sleep the kernel compares the word again.
// A violation shows as a hang until the park's time slice ends, never as a wrong sum.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "comm/group.h"

namespace lockstep::comm {

// Two 64-byte lines: the adjacent-line prefetcher pulls lines in pairs.
inline constexpr size_t kPadBytes = 128;

static_assert(std::atomic<uint64_t>::is_always_lock_free, "a lock would not be shared by processes");
static_assert(std::endian::native == std::endian::little, "the futex word is the low half");

struct MemberSlot {
  alignas(kPadBytes) std::atomic<uint64_t> world;
  alignas(kPadBytes) std::atomic<uint64_t> rank;
  // Apart from the words: written only when somebody parks, so the owner's check stays in its cache.
  alignas(kPadBytes) std::atomic<uint32_t> world_sleepers;
  std::atomic<uint32_t> rank_sleepers;
};

struct alignas(kPadBytes) VoteSlot {
  static constexpr size_t kTextBytes = 380;
  uint32_t code;
  char text[kTextBytes];
};

struct alignas(kPadBytes) DigestSlot {
  uint64_t digest[2];  // by parity of the publication
};

struct GroupState {
  enum RecordState : uint32_t { kEmpty, kWriting, kWritten };
  static constexpr size_t kTextBytes = 500;

  alignas(kPadBytes) std::atomic<uint32_t> poisoned;  // read in every wait, written once
  std::atomic<uint32_t> closing;                      // Join has begun
  alignas(kPadBytes) std::atomic<uint32_t> num_left;  // members whose body has returned
  // The leader's word: (number of the command << 8 | kCommand); the value lies in values[number % 2].
  alignas(kPadBytes) std::atomic<uint64_t> command;
  std::atomic<uint32_t> command_values[2];
  alignas(kPadBytes) std::atomic<uint32_t> command_sleepers;
  // The first fault: whoever moves record_state from kEmpty writes it.
  alignas(kPadBytes) std::atomic<uint32_t> record_state;
  uint32_t record_code;
  char record_text[kTextBytes];

  int num_members;

  MemberSlot& slot(int member) { return reinterpret_cast<MemberSlot*>(this + 1)[member]; }
  VoteSlot& vote(int member) { return reinterpret_cast<VoteSlot*>(&slot(num_members))[member]; }
  DigestSlot& digest(int rank) { return reinterpret_cast<DigestSlot*>(&vote(num_members))[rank]; }
  static size_t Bytes(int num_members, int world_size) {
    return sizeof(GroupState) + num_members * (sizeof(MemberSlot) + sizeof(VoteSlot)) + world_size * sizeof(DigestSlot);
  }
};

inline uint64_t PackWord(uint64_t epoch, SyncOp op) {
  return epoch << 8 | static_cast<uint8_t>(op);
}
inline uint64_t WordEpoch(uint64_t word) {
  return word >> 8;
}
inline SyncOp WordOp(uint64_t word) {
  return static_cast<SyncOp>(word & 0xff);
}

// Publishes a new value of a word and wakes its sleepers, if there are any (see above).
void PublishWord(std::atomic<uint64_t>& word, std::atomic<uint32_t>& sleepers, uint64_t value, RankMode mode);
void WakeWord(std::atomic<uint64_t>& word, RankMode mode);
int64_t SteadyNs();

}  // namespace lockstep::comm
