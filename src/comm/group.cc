#include "comm/group.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <thread>

#include "base/bits.h"
#include "base/check.h"
#include "comm/group_state.h"

namespace lockstep::comm {

const char* SyncOpName(SyncOp op) {
  switch (op) {
    case SyncOp::kNone:
      return "none";
    case SyncOp::kCommand:
      return "command";
    case SyncOp::kAllReduce:
      return "all_reduce";
    case SyncOp::kLogits:
      return "logits";
    case SyncOp::kDigest:
      return "digest";
    case SyncOp::kVote:
      return "vote";
    case SyncOp::kEnd:
      return "end";
    case SyncOp::kBarrier:
      return "barrier";
  }
  return "?";
}

Result<std::unique_ptr<Group>> Group::Create(const GroupOptions& options) {
  if (options.world_size < 1 || options.world_size > kMaxRanks) {
    return InvalidArgument(fmt::format("{} ranks: must be 1 to {}", options.world_size, kMaxRanks));
  }
  if (options.threads_per_rank < 1 || options.threads_per_rank > kMaxMembers / options.world_size) {
    return InvalidArgument(fmt::format("{} ranks of {} threads: must be 1 to {} threads in all", options.world_size,
                                       options.threads_per_rank, kMaxMembers));
  }
  if (!(options.timeout_secs > 0 && options.timeout_secs <= 1e6)) {
    return InvalidArgument(fmt::format("rank timeout {} s: must be above 0 and at most 1e6", options.timeout_secs));
  }
  LS_ASSIGN_OR_RETURN(FaultPlan fault, ParseFault(options.fault));
  if (fault.kind != FaultKind::kNone && fault.rank >= options.world_size) {
    return InvalidArgument(fmt::format("LOCKSTEP_FAULT \"{}\": there are {} ranks", options.fault, options.world_size));
  }

  std::unique_ptr<Group> group(new Group(options));
  group->fault_ = fault;
  group->timeout_ns_ = static_cast<int64_t>(options.timeout_secs * 1e9);
  const size_t page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  uint64_t total_bytes = 0;
  group->shared_offset_ = AlignUp(GroupState::Bytes(group->num_members(), options.world_size), page_bytes);
  if (!CheckedAdd(group->shared_offset_, options.shared_bytes, &total_bytes)) {
    return OutOfMemory(fmt::format("a shared area of {} bytes", options.shared_bytes));
  }
  void* memory = mmap(nullptr, total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return OutOfMemory(
        fmt::format("{} bytes shared by {} ranks: {}", total_bytes, options.world_size, std::strerror(errno)));
  }
  group->mapping_bytes_ = total_bytes;
  // The mapping is zero, which is the start value of every word; the constructors only begin the objects' lives.
  group->state_ = new (memory) GroupState();
  group->state_->num_members = group->num_members();
  for (int m = 0; m < group->num_members(); ++m) {
    new (&group->state_->slot(m)) MemberSlot();
    new (&group->state_->vote(m)) VoteSlot();
  }
  for (int r = 0; r < options.world_size; ++r) new (&group->state_->digest(r)) DigestSlot();
  group->children_.resize(options.world_size, 0);
  return group;
}

Group::~Group() {
  if (state_ != nullptr) munmap(state_, mapping_bytes_);
}

std::span<std::byte> Group::shared() const {
  return {reinterpret_cast<std::byte*>(state_) + shared_offset_, options_.shared_bytes};
}

bool Group::poisoned() const {
  return state_->poisoned.load(std::memory_order_relaxed) != 0;
}

Status Group::error() const {
  if (!poisoned()) return OkStatus();
  // Whoever claimed the record may still be writing it, or may have died over it: wait briefly.
  for (int tries = 0; state_->record_state.load(std::memory_order_acquire) != GroupState::kWritten; ++tries) {
    if (tries >= 100) return PeerLost("a rank died while it reported a fault");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Status(static_cast<StatusCode>(state_->record_code), state_->record_text);
}

void Group::Poison(const Status& why) const {
  LS_CHECK(!why.ok());
  uint32_t expected = GroupState::kEmpty;
  if (state_->record_state.compare_exchange_strong(expected, GroupState::kWriting, std::memory_order_acq_rel)) {
    state_->record_code = static_cast<uint32_t>(why.code());
    const size_t bytes = std::min(why.message().size(), GroupState::kTextBytes - 1);
    std::memcpy(state_->record_text, why.message().data(), bytes);
    state_->record_text[bytes] = '\0';
    state_->record_state.store(GroupState::kWritten, std::memory_order_release);
  }
  state_->poisoned.store(1, std::memory_order_seq_cst);
  // Parked members would look up at the end of their slice anyway; this spares them the rest of it.
  for (int m = 0; m < num_members(); ++m) {
    WakeWord(state_->slot(m).world, options_.mode);
    WakeWord(state_->slot(m).rank, options_.mode);
  }
  WakeWord(state_->command, options_.mode);
}

Member Group::MakeMember(int rank, int thread) {
  LS_CHECK(rank >= 0 && rank < world_size());
  LS_CHECK(thread >= 0 && thread < threads_per_rank());
  return Member(this, rank, thread);
}

Member::Member(Group* group, int rank, int thread)
    : group_(group), rank_(rank), thread_(thread), index_(rank * group->threads_per_rank() + thread) {}

bool Group::ReapDead() {
  bool found = false;
  for (int rank = 0; rank < world_size(); ++rank) {
    pid_t& child = children_[rank];
    int how = 0;
    if (child == 0 || waitpid(child, &how, WNOHANG) != child) continue;
    const pid_t pid = child;
    child = 0;
    const bool closing = state_->closing.load(std::memory_order_relaxed) != 0;
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0 && closing) continue;  // as told
    found = true;
    if (WIFSIGNALED(how)) {
      Poison(PeerLost(
          fmt::format("rank {} (pid {}) died: signal {} ({})", rank, pid, WTERMSIG(how), strsignal(WTERMSIG(how)))));
    } else {
      Poison(PeerLost(fmt::format("rank {} (pid {}) died: exit code {}", rank, pid, WEXITSTATUS(how))));
    }
  }
  return found;
}

void Member::PublishDigest(uint64_t digest) {
  LS_CHECK_EQ(thread_, 0);
  group_->state_->digest(rank_).digest[digest_calls_ % 2] = digest;
}

// Two parities suffice: a rank overwrites the digest of call n at call n+2, after the sync of call n+1, where every
// reader arrived only after it had read call n.
bool Member::CheckDigests(uint64_t step) {
  const uint64_t parity = digest_calls_++ % 2;
  const uint64_t mine = group_->state_->digest(rank_).digest[parity];
  for (int peer = 0; peer < world_size(); ++peer) {
    const uint64_t theirs = group_->state_->digest(peer).digest[parity];
    if (theirs == mine) continue;
    // Lower rank first, so that all ranks that see the difference write the same text.
    const bool first = rank_ < peer;
    group_->Poison(PeerLost(fmt::format("ranks disagree at step {}: rank {} digest {:016x}, rank {} digest {:016x}",
                                        step, first ? rank_ : peer, first ? mine : theirs, first ? peer : rank_,
                                        first ? theirs : mine)));
    return false;
  }
  return !group_->poisoned();
}

bool Member::FaultPoint(uint64_t step) {
  const bool by_process = group_->options().mode == RankMode::kProcess;
  if (FaultHere(FaultKind::kKill, step)) [[unlikely]] {
    if (by_process) kill(getpid(), SIGKILL);
    group_->Poison(PeerLost(fmt::format("rank {} died: planted fault at step {}", rank_, step)));
  }
  if (FaultHere(FaultKind::kStall, step)) [[unlikely]] {
    if (by_process) raise(SIGSTOP);
    while (!by_process && !group_->poisoned()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  return !group_->poisoned();
}

Status Vote(Member& member, const Status& mine) {
  Group& group = member.group();
  VoteSlot& slot = group.state_->vote(member.index_);
  slot.code = static_cast<uint32_t>(mine.code());
  const size_t bytes = std::min(mine.message().size(), VoteSlot::kTextBytes - 1);
  std::memcpy(slot.text, mine.message().data(), bytes);
  slot.text[bytes] = '\0';
  if (!member.SyncWorld(SyncOp::kVote)) return group.error();
  Status verdict;
  for (int m = 0; m < group.num_members(); ++m) {
    const VoteSlot& theirs = group.state_->vote(m);
    if (theirs.code == 0) continue;
    verdict = Status(static_cast<StatusCode>(theirs.code),
                     fmt::format("rank {}: {}", m / group.threads_per_rank(), theirs.text));
    break;
  }
  // Nobody may vote again, and so overwrite its slot, before all have read.
  if (!member.SyncWorld(SyncOp::kVote)) return group.error();
  return verdict;
}

}  // namespace lockstep::comm
