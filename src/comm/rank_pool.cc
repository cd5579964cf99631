#include "comm/rank_pool.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

#include "base/fp_env.h"
#include "comm/group_state.h"

namespace lockstep::comm {
namespace {

// A member that is told to leave is inside one step at most; 2 s cover a long prefill step on a slow machine, and a
// member of a poisoned group leaves at its next wait.
constexpr double kLeaveSecs = 2.0;
constexpr double kPoisonedLeaveSecs = 1.0;

int CountThreads() {
  std::error_code error;
  int count = 0;
  std::filesystem::directory_iterator entry("/proc/self/task", error), end;
  for (; !error && entry != end; entry.increment(error)) ++count;
  return count;
}

}  // namespace

RankPool::RankPool(std::unique_ptr<Group> group)
    : group_(std::move(group)), leader_(new Member(group_->MakeMember(0, 0))) {}

Result<std::unique_ptr<RankPool>> RankPool::Start(const GroupOptions& options, Body body) {
  LS_ASSIGN_OR_RETURN(std::unique_ptr<Group> group, Group::Create(options));
  return Start(std::move(group), std::move(body));
}

Result<std::unique_ptr<RankPool>> RankPool::Start(std::unique_ptr<Group> group, Body body) {
  std::unique_ptr<RankPool> pool(new RankPool(std::move(group)));
  Status status = pool->Launch(body);
  if (!status.ok()) {
    pool->group_->Poison(status);
    return pool->Join();  // those that did start
  }
  return pool;
}

Status RankPool::Launch(const Body& body) {
  const GroupOptions& options = group_->options();
  SetFpEnv();
  const bool by_process = options.mode == RankMode::kProcess;
  if (by_process && options.world_size > 1) {
    // A forked child has only the forking thread; a lock held by any other thread would stay locked in it for ever.
    if (int threads = CountThreads(); threads > 1) {
      return InvalidArgument(
          fmt::format("ranks as processes must be started before other threads: {} run already", threads));
    }
    const pid_t parent = getpid();
    for (int rank = 1; rank < options.world_size; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) RunChild(rank, parent, body);
      if (pid < 0) {
        return OutOfMemory(fmt::format("cannot fork rank {}: {}", rank, std::strerror(errno)));
      }
      group_->children_[rank] = pid;
    }
  }
  try {
    for (int rank = 0; rank < (by_process ? 1 : options.world_size); ++rank) {
      for (int thread = rank == 0 ? 1 : 0; thread < options.threads_per_rank; ++thread) {
        threads_.emplace_back([this, rank, thread, body] { RunMember(rank, thread, body); });
      }
    }
  } catch (const std::system_error& error) {
    return OutOfMemory(
        fmt::format("cannot start thread {} of {}: {}", threads_.size() + 2, group_->num_members(), error.what()));
  }
  return OkStatus();
}

void RankPool::RunChild(int rank, pid_t parent, const Body& body) {
  // The kernel kills this child when the leader's thread ends, however it ends. The leader may have died before the
  // request was made, so look once more.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  // Ctrl-C reaches the whole foreground group; the leader decides what it means.
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  group_->children_.assign(group_->children_.size(), 0);  // siblings are not ours to reap
  try {
    for (int thread = 1; thread < group_->threads_per_rank(); ++thread) {
      threads_.emplace_back([this, rank, thread, &body] { RunMember(rank, thread, body); });
    }
  } catch (const std::system_error& error) {
    group_->Poison(OutOfMemory(fmt::format("rank {} cannot start its threads: {}", rank, error.what())));
  }
  RunMember(rank, 0, body);
  for (std::thread& t : threads_) t.join();
  // Not exit: the parent's buffers and atexit handlers were copied by the fork and must run once only.
  _exit(group_->poisoned() ? 1 : 0);
}

void RankPool::RunMember(int rank, int thread, const Body& body) {
  SetFpEnv();
  Member member = group_->MakeMember(rank, thread);
  Status status;
  try {
    status = body(member);
  } catch (const std::bad_alloc&) {
    status = OutOfMemory("out of memory");
  } catch (const std::exception& error) {
    status = Internal(error.what());
  }
  GroupState& state = *group_->state_;
  if (!status.ok()) {
    group_->Poison(status.WithContext(fmt::format("rank {}", rank)));
  } else if (!state.closing.load(std::memory_order_relaxed) && !group_->poisoned()) {
    group_->Poison(PeerLost(fmt::format("rank {} thread {} left before it was told to", rank, thread)));
  }
  state.num_left.fetch_add(1, std::memory_order_release);
}

// True when all others have left; in process mode their processes are reaped as well.
bool RankPool::WaitChildren(double secs) {
  const int64_t deadline_ns = SteadyNs() + static_cast<int64_t>(secs * 1e9);
  const bool by_process = group_->options().mode == RankMode::kProcess;
  for (int nap_us = 20;; nap_us = std::min(2 * nap_us, 500)) {  // most leave at once
    group_->ReapDead();
    bool alone = true;
    for (pid_t child : group_->children_) alone = alone && child == 0;
    // A killed rank's members never count themselves out, so processes are judged by their end alone.
    const uint32_t others = static_cast<uint32_t>(threads_.size());
    if (!by_process) {
      alone = group_->state_->num_left.load(std::memory_order_acquire) >= others;
    }
    if (alone) return true;
    if (SteadyNs() >= deadline_ns) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(nap_us));
  }
}

Status RankPool::Join() {
  if (joined_) return result_;
  joined_ = true;
  group_->state_->closing.store(1, std::memory_order_seq_cst);
  leader_->PostCommand(kShutdownCommand);
  if (!WaitChildren(group_->poisoned() ? kPoisonedLeaveSecs : kLeaveSecs)) {
    if (!group_->poisoned()) {
      group_->Poison(PeerLost(fmt::format("a rank did not leave within {} s", kLeaveSecs)));
      WaitChildren(kPoisonedLeaveSecs);
    }
    for (pid_t& child : group_->children_) {
      if (child == 0) continue;
      kill(child, SIGKILL);  // ends a stopped process too
      waitpid(child, nullptr, 0);
      child = 0;
    }
  }
  // Threads cannot be killed. They leave at their next wait; a body must not block elsewhere.
  for (std::thread& t : threads_) t.join();
  result_ = group_->error();
  return result_;
}

RankPool::~RankPool() {
  Status status = Join();
  (void)status;  // whoever wants it has called Join
}

}  // namespace lockstep::comm
