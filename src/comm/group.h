// A group of ranks on one host that run the same program in lockstep: barriers, commands, votes, faults with names.
//
// Units:    seconds for timeouts; trace::Ticks for waits; epochs count SyncWorld calls, from 1
// Requires: every member calls the same SyncWorld / ArriveWorld in the same order; SyncRank alike inside its rank
// Errors:   kPeerLost         a rank died, left, did not arrive in time, or published another digest; it is named
//           kInvalidArgument  bad options or a bad LOCKSTEP_FAULT
//           kOutOfMemory      the shared mapping was refused
//           kInternal         two members met in different operations
// Threads:  a Member belongs to one thread; Group's const functions to any
// Capture:  Create and RankPool::Start: Prepare; the Member calls: Run (no allocation)
// Cost:     SyncWorld: one store with a full barrier, and one load for each other member while nobody parks
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/fault.h"
#include "comm/rank_mode.h"

namespace lockstep::comm {

// What a wait is for. Errors name it, and members that meet in different operations are an error of their own.
enum class SyncOp : uint8_t {
  kNone,
  kCommand,
  kAllReduce,
  kLogits,
  kDigest,
  kVote,
  kEnd,
  kBarrier,
};
const char* SyncOpName(SyncOp op);  // "all_reduce"

struct GroupOptions {
  int world_size = 1;        // 1..kMaxRanks
  int threads_per_rank = 1;  // world_size * threads_per_rank <= kMaxMembers
  RankMode mode = RankMode::kThread;
  size_t shared_bytes = 0;   // the caller's area in the shared mapping
  double timeout_secs = 30;  // how long a member waits for another inside a step
  // More members than cores: park at once, for spinning would keep the awaited one out.
  bool oversubscribed = false;
  std::string fault = {};  // ParseFault; RankPool users pass Env::Get().fault
};

inline constexpr int kMaxRanks = 64;
inline constexpr int kMaxMembers = 1024;

struct GroupState;  // the shared mapping (group_state.h)
class Member;
Status Vote(Member& member, const Status& mine);

class Group {
 public:
  // Maps the shared state. Call before any fork, and before any thread in process mode.
  static Result<std::unique_ptr<Group>> Create(const GroupOptions& options);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const GroupOptions& options() const { return options_; }
  int world_size() const { return options_.world_size; }
  int threads_per_rank() const { return options_.threads_per_rank; }
  int num_members() const { return options_.world_size * options_.threads_per_rank; }

  // [shared_bytes], zeroed, page aligned, at the same address in every rank.
  std::span<std::byte> shared() const;

  // One relaxed load.
  bool poisoned() const;
  // The first fault, ok while there is none. The same text in every rank.
  Status error() const;
  // Stops the group: every wait of every member returns false soon. Only the first call's status is kept.
  void Poison(const Status& why) const;

  // The member `thread` of `rank`; the thread that calls its functions owns it.
  Member MakeMember(int rank, int thread);

 private:
  friend class Member;
  friend class RankPool;
  friend Status Vote(Member& member, const Status& mine);
  explicit Group(const GroupOptions& options) : options_(options) {}
  // Leader only: notices children that have died, and poisons. True if one has.
  bool ReapDead();

  GroupOptions options_;
  FaultPlan fault_;
  int64_t timeout_ns_ = 0;
  GroupState* state_ = nullptr;
  size_t mapping_bytes_ = 0;
  size_t shared_offset_ = 0;
  std::vector<pid_t> children_;  // by rank; 0: not a child, or reaped. Filled in the leader's process only
};

class Member {
 public:
  int rank() const { return rank_; }
  int thread() const { return thread_; }
  int world_size() const { return group_->world_size(); }
  int threads_per_rank() const { return group_->threads_per_rank(); }
  bool is_leader() const { return rank_ == 0 && thread_ == 0; }
  Group& group() const { return *group_; }
  // World syncs that this member has arrived at.
  uint64_t epoch() const { return world_epoch_; }

  // True once every member of every rank has called it; false when the group is poisoned: leave the step then.
  // What a member wrote before is visible to all after.
  bool SyncWorld(SyncOp op) {
    ArriveWorld(op);
    return WaitWorld(op);
  }
  // The same in two halves, with the member's own work between them. They alternate.
  void ArriveWorld(SyncOp op);
  bool WaitWorld(SyncOp op);
  // The threads of this member's rank only; a rank of one thread does not wait.
  bool SyncRank(SyncOp op);

  // Leader: hands a command to all other members. Between two posts lies a SyncWorld, so none can miss one.
  // kShutdownCommand is RankPool::Join's.
  void PostCommand(uint32_t command);
  // Others: waits without a limit for the next command; false when the group is poisoned or shut down: leave then.
  bool WaitCommand(uint32_t* command);

  // Ticks (trace/ticks.h) spent waiting in WaitWorld and SyncRank since the last TakeWaitTicks: the skew, which the
  // caller books apart from the work around it.
  uint64_t TakeWaitTicks() {
    uint64_t ticks = wait_ticks_;
    wait_ticks_ = 0;
    return ticks;
  }

  // Thread 0 of every rank: publishes before a SyncWorld and checks after it, once each. A mismatch poisons the group
  // with both sides' values; false then.
  void PublishDigest(uint64_t digest);
  bool CheckDigests(uint64_t step);

  // Thread 0 of every rank, once a step: dies or stalls here if LOCKSTEP_FAULT says so. False: leave the step.
  bool FaultPoint(uint64_t step);
  // True where the caller must plant the fault itself (kCorrupt).
  bool FaultHere(FaultKind kind, uint64_t step) const { return thread_ == 0 && group_->fault_.Hits(kind, rank_, step); }
  // True from the fault's step on, in every thread of every rank (kRound).
  bool FaultRounds(uint64_t step) const {
    return group_->fault_.kind == FaultKind::kRound && step >= group_->fault_.step;
  }

 private:
  friend class Group;
  friend Status Vote(Member& member, const Status& mine);
  struct WaitTarget;
  Member(Group* group, int rank, int thread);
  // Waits until a peer's word has reached an epoch: spins, then parks. False when poisoned.
  bool WaitFor(const WaitTarget& target);
  bool Park(const WaitTarget& target);
  int64_t TimeoutNs(SyncOp op) const;
  static void ForgiveStop(const WaitTarget& target, int64_t* looked_at_ns, int64_t now_ns);
  bool SameOp(const WaitTarget& target, uint64_t seen);
  bool Expired(const WaitTarget& target, int64_t now_ns);

  Group* group_;
  int rank_, thread_, index_;
  uint64_t world_epoch_ = 0, rank_epoch_ = 0, digest_calls_ = 0;
  uint64_t command_seq_ = 0;
  uint64_t wait_ticks_ = 0;
};

inline constexpr uint32_t kShutdownCommand = 0xffffffffu;

// Every member gives its own status; all get ok, or all get the first failing rank's "rank 2: <reason>". Before set-up
// is complete nobody may leave alone: the others would wait for it. Called by every member.
Status Vote(Member& member, const Status& mine);

}  // namespace lockstep::comm
