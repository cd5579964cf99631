// Waiting: spin, then park; and the member calls built on it. The protocol is explained in group_state.h.
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <ctime>

#include "comm/group.h"
#include "comm/group_state.h"
#include "trace/ticks.h"

namespace lockstep::comm {
namespace {

// A decode step's waits are microseconds and the gap between two steps is tens of them, so 200 us of spinning keep a
// busy engine free of system calls. Longer would cost more than it saves where another program takes a core: with one
// busy neighbour on two cores, plain decoding on two ranks ran 2.0 to 2.7 times faster with 200 us than with 5 ms, and no
// faster with 50 us. A prefill's ranks, whose skew is milliseconds, park.
constexpr int64_t kSpinNs = 200'000;
// With more members than cores the awaited one may need this very core: spin only for as long as a park costs.
constexpr int kOversubscribedSpins = 64;
// Spins between two reads of the clock, about 10 us of pauses. A power of two.
constexpr int kSpinsPerClock = 256;
constexpr int kSpinsPerPoisonCheck = 16;
// A parked member looks around this often: the leader for dead children, all for a poison that raced with the park.
constexpr int64_t kLeaderSliceNs = 20'000'000;
constexpr int64_t kSliceNs = 50'000'000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint32_t* FutexWord(std::atomic<uint64_t>& word) {
  return reinterpret_cast<uint32_t*>(&word);
}

// Processes share the word through different address spaces: only the non-private form finds it by its page.
int FutexOp(int op, RankMode mode) {
  return mode == RankMode::kThread ? op | FUTEX_PRIVATE_FLAG : op;
}

void ParkOn(std::atomic<uint64_t>& word, uint64_t seen, int64_t nanos, RankMode mode) {
  timespec timeout{nanos / 1'000'000'000, nanos % 1'000'000'000};
  syscall(SYS_futex, FutexWord(word), FutexOp(FUTEX_WAIT, mode), static_cast<uint32_t>(seen), &timeout, nullptr, 0);
}

}  // namespace

int64_t SteadyNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void WakeWord(std::atomic<uint64_t>& word, RankMode mode) {
  syscall(SYS_futex, FutexWord(word), FutexOp(FUTEX_WAKE, mode), INT_MAX, nullptr, nullptr, 0);
}

void PublishWord(std::atomic<uint64_t>& word, std::atomic<uint32_t>& sleepers, uint64_t value, RankMode mode) {
  word.store(value, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) [[unlikely]]
    WakeWord(word, mode);
}

// One member's wait for one word of one peer.
struct Member::WaitTarget {
  std::atomic<uint64_t>& word;
  std::atomic<uint32_t>& sleepers;
  uint64_t epoch;
  SyncOp op;
  int peer;
  int64_t timeout_ns;    // 0: none
  int64_t* deadline_ns;  // set at the first look at the clock; shared by the waits of one sync

  bool Reached(uint64_t seen) const { return WordEpoch(seen) >= epoch; }
};

// Members that met in different operations run different programs; their data would be garbage.
bool Member::SameOp(const WaitTarget& t, uint64_t seen) {
  if (WordEpoch(seen) != t.epoch || WordOp(seen) == t.op) [[likely]]
    return true;
  group_->Poison(Internal(
      fmt::format("ranks disagree about the program at epoch {}: rank {} thread {} is in {}, rank {} thread {} in {}",
                  t.epoch, rank_, thread_, SyncOpName(t.op), t.peer / threads_per_rank(), t.peer % threads_per_rank(),
                  SyncOpName(WordOp(seen)))));
  return false;
}

bool Member::Expired(const WaitTarget& t, int64_t now_ns) {
  if (t.timeout_ns == 0 || now_ns < *t.deadline_ns) return false;
  uint64_t seen = t.word.load(std::memory_order_acquire);
  if (t.Reached(seen)) return false;  // it came while we looked at the clock
  group_->Poison(PeerLost(
      fmt::format("rank {} thread {} waited {:.3g} s in {} for rank {} thread {}: epoch {} expected, {} seen (in {})",
                  rank_, thread_, t.timeout_ns * 1e-9, SyncOpName(t.op), t.peer / threads_per_rank(),
                  t.peer % threads_per_rank(), t.epoch, WordEpoch(seen), SyncOpName(WordOp(seen)))));
  return true;
}

// Loading a model from a cold disk takes ranks unevenly long: that is no fault.
int64_t Member::TimeoutNs(SyncOp op) const {
  constexpr int64_t kSetUpFactor = 20;
  return group_->timeout_ns_ * (op == SyncOp::kVote ? kSetUpFactor : 1);
}

// A waiter looks at the clock every few microseconds, or slices of 50 ms. A long gap means that it did not run itself: the
// whole program was stopped (Ctrl-Z, a debugger, a paused container). That time counts against nobody.
void Member::ForgiveStop(const WaitTarget& t, int64_t* looked_at_ns, int64_t now_ns) {
  constexpr int64_t kStopNs = 500'000'000;
  const int64_t gap_ns = now_ns - *looked_at_ns;
  if (*looked_at_ns != 0 && gap_ns > kStopNs && *t.deadline_ns != 0) *t.deadline_ns += gap_ns;
  *looked_at_ns = now_ns;
}

bool Member::WaitFor(const WaitTarget& t) {
  uint64_t seen = t.word.load(std::memory_order_acquire);
  if (t.Reached(seen)) [[likely]]
    return SameOp(t, seen);
  const bool oversubscribed = group_->options().oversubscribed;
  int64_t park_at_ns = 0, looked_at_ns = 0;
  for (int spins = 1;; ++spins) {
    Pause();
    seen = t.word.load(std::memory_order_acquire);
    if (t.Reached(seen)) return SameOp(t, seen);
    if (spins % kSpinsPerPoisonCheck == 0 && group_->poisoned()) return false;
    if (oversubscribed && spins >= kOversubscribedSpins) break;
    if (spins % kSpinsPerClock == 0) {
      int64_t now_ns = SteadyNs();
      ForgiveStop(t, &looked_at_ns, now_ns);
      if (*t.deadline_ns == 0) *t.deadline_ns = now_ns + t.timeout_ns;
      if (park_at_ns == 0) park_at_ns = now_ns + kSpinNs;
      if (Expired(t, now_ns)) return false;
      if (now_ns >= park_at_ns) break;
    }
  }
  return Park(t);
}

bool Member::Park(const WaitTarget& t) {
  const RankMode mode = group_->options().mode;
  const int64_t slice_ns = is_leader() ? kLeaderSliceNs : kSliceNs;
  int64_t now_ns = SteadyNs();
  if (*t.deadline_ns == 0) *t.deadline_ns = now_ns + t.timeout_ns;
  int64_t reap_at_ns = now_ns + kLeaderSliceNs, looked_at_ns = now_ns;
  for (;;) {
    int64_t nanos = slice_ns;
    if (t.timeout_ns != 0) nanos = std::clamp<int64_t>(*t.deadline_ns - now_ns, 1, slice_ns);
    t.sleepers.fetch_add(1, std::memory_order_seq_cst);
    uint64_t seen = t.word.load(std::memory_order_seq_cst);
    if (!t.Reached(seen) && !group_->poisoned()) ParkOn(t.word, seen, nanos, mode);
    t.sleepers.fetch_sub(1, std::memory_order_relaxed);

    seen = t.word.load(std::memory_order_acquire);
    if (t.Reached(seen)) return SameOp(t, seen);
    if (group_->poisoned()) return false;
    now_ns = SteadyNs();
    ForgiveStop(t, &looked_at_ns, now_ns);
    // Before the timeout: "died by signal 9" says more than "did not come".
    if (is_leader() && now_ns >= reap_at_ns) {
      reap_at_ns = now_ns + kLeaderSliceNs;
      if (group_->ReapDead()) return false;
    }
    if (Expired(t, now_ns)) return false;
  }
}

void Member::ArriveWorld(SyncOp op) {
  MemberSlot& mine = group_->state_->slot(index_);
  PublishWord(mine.world, mine.world_sleepers, PackWord(++world_epoch_, op), group_->options().mode);
}

bool Member::WaitWorld(SyncOp op) {
  const uint64_t begin = trace::Ticks();
  const int num_members = group_->num_members();
  int64_t deadline_ns = 0;
  bool ok = true;
  for (int peer = 0; peer < num_members && ok; ++peer) {
    if (peer == index_) continue;
    MemberSlot& slot = group_->state_->slot(peer);
    ok = WaitFor({slot.world, slot.world_sleepers, world_epoch_, op, peer, TimeoutNs(op), &deadline_ns});
  }
  wait_ticks_ += trace::Ticks() - begin;
  return ok && !group_->poisoned();
}

bool Member::SyncRank(SyncOp op) {
  const int num_threads = threads_per_rank();
  if (num_threads == 1) return true;
  const uint64_t begin = trace::Ticks();
  MemberSlot& mine = group_->state_->slot(index_);
  PublishWord(mine.rank, mine.rank_sleepers, PackWord(++rank_epoch_, op), group_->options().mode);
  int64_t deadline_ns = 0;
  bool ok = true;
  for (int peer = rank_ * num_threads; peer < (rank_ + 1) * num_threads && ok; ++peer) {
    if (peer == index_) continue;
    MemberSlot& slot = group_->state_->slot(peer);
    ok = WaitFor({slot.rank, slot.rank_sleepers, rank_epoch_, op, peer, TimeoutNs(op), &deadline_ns});
  }
  wait_ticks_ += trace::Ticks() - begin;
  return ok && !group_->poisoned();
}

void Member::PostCommand(uint32_t command) {
  LS_CHECK(is_leader());
  GroupState& state = *group_->state_;
  ++command_seq_;
  state.command_values[command_seq_ % 2].store(command, std::memory_order_relaxed);
  PublishWord(state.command, state.command_sleepers, PackWord(command_seq_, SyncOp::kCommand), group_->options().mode);
}

bool Member::WaitCommand(uint32_t* command) {
  LS_CHECK(!is_leader());
  GroupState& state = *group_->state_;
  int64_t deadline_ns = 0;
  if (!WaitFor({state.command, state.command_sleepers, command_seq_ + 1, SyncOp::kCommand, 0, 0, &deadline_ns})) {
    return false;
  }
  if (group_->poisoned() || state.closing.load(std::memory_order_relaxed)) return false;
  uint64_t posted = WordEpoch(state.command.load(std::memory_order_acquire));
  ++command_seq_;
  if (posted != command_seq_) {
    // Read again: a shutdown may be posted over a command that nobody has taken, and says so before it is posted.
    if (state.closing.load(std::memory_order_relaxed)) return false;
    group_->Poison(Internal(
        fmt::format("rank {} thread {} missed command {}: the leader is at {}", rank_, thread_, command_seq_, posted)));
    return false;
  }
  *command = state.command_values[command_seq_ % 2].load(std::memory_order_relaxed);
  return *command != kShutdownCommand;
}

}  // namespace lockstep::comm
