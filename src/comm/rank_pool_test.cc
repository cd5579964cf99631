// Ranks that die, stall or leave: the error names them, within the timeout, and nobody hangs (promise P6).
#include "comm/rank_pool.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "comm/test_util.h"

namespace lockstep::comm {
namespace {

using testing::Modes;
using testing::Options;
using testing::SecsSince;
using testing::StepLoop;

bool Contains(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

// Steps until the group fails, at most 200.
void Decode(Member& m, uint32_t) {
  for (uint64_t step = 0; step < 200; ++step) {
    if (!m.FaultPoint(step)) return;
    if (!m.SyncWorld(SyncOp::kAllReduce) || !m.SyncRank(SyncOp::kBarrier)) return;
  }
}

struct Outcome {
  Status status;
  double secs = 0;
};

Outcome RunWithFault(GroupOptions options, const std::string& fault) {
  options.fault = fault;
  auto begin = std::chrono::steady_clock::now();
  auto pool = RankPool::Start(options, StepLoop(Decode));
  if (!pool.ok()) return {pool.status(), 0};
  (*pool)->leader().PostCommand(1);
  Decode((*pool)->leader(), 1);
  Status status = (*pool)->Join();
  return {status, SecsSince(begin)};
}

void ExpectNoChildren() {
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(RankPool, AKilledRankIsNamed) {
  for (RankMode mode : Modes()) {
    for (int threads : {1, 2}) {
      for (int rank : {1, 2}) {
        Outcome o = RunWithFault(Options(3, threads, mode, 10), "kill:rank=" + std::to_string(rank) + ",step=20");
        EXPECT_EQ(o.status.code(), StatusCode::kPeerLost);
        EXPECT_TRUE(Contains(o.status, "rank " + std::to_string(rank))) << o.status.message();
        EXPECT_TRUE(Contains(o.status, "died")) << o.status.message();
        if (mode == RankMode::kProcess) {
          EXPECT_TRUE(Contains(o.status, "signal 9 (Killed)")) << o.status.message();
          ExpectNoChildren();
        }
        EXPECT_LT(o.secs, 5);  // long before the timeout
      }
    }
  }
}

TEST(RankPool, AStalledRankIsNamedWithinTheTimeout) {
  for (RankMode mode : Modes()) {
    for (int threads : {1, 2}) {
      Outcome o = RunWithFault(Options(3, threads, mode, 0.5), "stall:rank=1,step=20");
      EXPECT_EQ(o.status.code(), StatusCode::kPeerLost);
      EXPECT_TRUE(Contains(o.status, "for rank 1 thread")) << o.status.message();
      EXPECT_TRUE(Contains(o.status, "expected, ")) << o.status.message();
      EXPECT_LT(o.secs, 4);
      if (mode == RankMode::kProcess) ExpectNoChildren();
    }
  }
}

TEST(RankPool, ABodyThatFailsOrLeavesIsNamed) {
  for (RankMode mode : Modes()) {
    for (bool fails : {true, false}) {
      auto pool = RankPool::Start(Options(3, 1, mode, 10), [&](Member& m) {
        if (m.rank() == 2) return fails ? NotFound("no such tensor") : OkStatus();
        return StepLoop(Decode)(m);
      });
      ASSERT_TRUE(pool.ok());
      (*pool)->leader().PostCommand(1);
      Decode((*pool)->leader(), 1);
      Status status = (*pool)->Join();
      if (fails) {
        EXPECT_EQ(status.code(), StatusCode::kNotFound);
        EXPECT_EQ(status.message(), "rank 2: no such tensor");
      } else {
        EXPECT_TRUE(Contains(status, "rank 2 thread 0 left")) << status.message();
      }
      EXPECT_FALSE((*pool)->Join().ok());  // the same again
    }
  }
}

TEST(RankPool, ExitAndAbortOfAProcessAreNamed) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "the sanitizer does not follow forks of threaded processes";
  for (bool aborts : {true, false}) {
    auto pool = RankPool::Start(Options(2, 1, RankMode::kProcess, 10), [&](Member&) {
      signal(SIGABRT, SIG_DFL);
      if (aborts) raise(SIGABRT);
      _exit(7);
      return OkStatus();
    });
    ASSERT_TRUE(pool.ok());
    Decode((*pool)->leader(), 1);
    Status status = (*pool)->Join();
    EXPECT_TRUE(Contains(status, aborts ? "signal 6" : "exit code 7")) << status.message();
    ExpectNoChildren();
  }
}

TEST(RankPool, ADeathBetweenStepsIsNamedInTheNext) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "the sanitizer does not follow forks of threaded processes";
  auto begin = std::chrono::steady_clock::now();
  auto pool = RankPool::Start(Options(2, 1, RankMode::kProcess, 10), StepLoop([](Member& m, uint32_t) {
                                m.SyncWorld(SyncOp::kEnd);
                                kill(getpid(), SIGKILL);
                              }));
  ASSERT_TRUE(pool.ok());
  (*pool)->leader().PostCommand(1);
  EXPECT_TRUE((*pool)->leader().SyncWorld(SyncOp::kEnd));
  (*pool)->leader().PostCommand(2);
  EXPECT_FALSE((*pool)->leader().SyncWorld(SyncOp::kEnd));
  EXPECT_TRUE(Contains((*pool)->group().error(), "rank 1 (pid ")) << (*pool)->group().error().message();
  EXPECT_LT(SecsSince(begin), 5);  // long before the timeout
}

TEST(RankPool, JoinEndsRanksThatAreStoppedOrInsideAStep) {
  for (RankMode mode : Modes()) {
    auto begin = std::chrono::steady_clock::now();
    auto pool = RankPool::Start(Options(2, 2, mode, 60), StepLoop(Decode));
    ASSERT_TRUE(pool.ok());
    (*pool)->leader().PostCommand(1);  // and the leader never comes
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    Status status = (*pool)->Join();
    EXPECT_TRUE(Contains(status, "did not leave")) << status.message();
    EXPECT_LT(SecsSince(begin), 10);
  }
}

TEST(RankPool, ParkedMembersWakeForACommandAndForTheShutdown) {
  for (RankMode mode : Modes()) {
    auto pool = RankPool::Start(Options(3, 1, mode), StepLoop(Decode));
    ASSERT_TRUE(pool.ok());
    for (int round = 0; round < 3; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      (*pool)->leader().PostCommand(1);
      Decode((*pool)->leader(), 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    Status status = (*pool)->Join();
    EXPECT_TRUE(status.ok()) << status.message();
  }
  if (!testing::kThreadSanitizer) ExpectNoChildren();
}

TEST(RankPool, ProcessesMustBeForkedBeforeThreads) {
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  auto pool = RankPool::Start(Options(2, 1, RankMode::kProcess), StepLoop(Decode));
  stop = true;
  other.join();
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), StatusCode::kInvalidArgument);
}

// The whole program is stopped (Ctrl-Z) while rank 0 waits for rank 1, for longer than the time limit. After that rank 1
// still has work to do, and must get its time for it.
TEST(RankPool, ATimeInWhichTheWholeProgramStoodStillCountsAgainstNobody) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "the sanitizer does not follow forks of threaded processes";
  for (RankMode mode : Modes()) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t program = fork();
    if (program == 0) {
      setpgid(0, 0);  // what a shell makes of a job, so that a signal reaches all its processes
      auto step = [&](Member& m, uint32_t) {
        if (m.rank() == 0) {
          if (write(ends[1], "x", 1) != 1) _exit(3);
        } else {
          // In small pieces: a single sleep would simply be over when the program goes on.
          for (int i = 0; i < 40; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        m.SyncWorld(SyncOp::kAllReduce);
      };
      auto pool = RankPool::Start(Options(2, 1, mode, 1.5), StepLoop(step));
      if (!pool.ok()) _exit(2);
      (*pool)->leader().PostCommand(1);
      step((*pool)->leader(), 1);
      _exit((*pool)->Join().ok() ? 0 : 1);
    }
    close(ends[1]);  // or the end of a program that never came so far would not be seen
    char byte = 0;
    if (read(ends[0], &byte, 1) != 1) {
      waitpid(program, nullptr, 0);
      FAIL() << "the program did not start";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ASSERT_EQ(kill(-program, SIGSTOP), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(2200));
    ASSERT_EQ(kill(-program, SIGCONT), 0);
    int how = 0;
    ASSERT_EQ(waitpid(program, &how, 0), program);
    EXPECT_TRUE(WIFEXITED(how));
    EXPECT_EQ(WEXITSTATUS(how), 0) << testing::ModeName(mode);
    close(ends[0]);
  }
}

// All processes that hold the write end are gone when the read end sees the end of the file.
TEST(RankPool, ChildrenDieWithTheLeader) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "the sanitizer does not follow forks of threaded processes";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pid_t leader = fork();
  if (leader == 0) {
    close(ends[0]);
    auto pool = RankPool::Start(Options(4, 1, RankMode::kProcess), StepLoop(Decode));
    if (!pool.ok()) _exit(1);
    if (write(ends[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(ends[1]);
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  kill(leader, SIGKILL);
  EXPECT_EQ(waitpid(leader, nullptr, 0), leader);
  pollfd waiting{ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 5000), 1);
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  close(ends[0]);
}

}  // namespace
}  // namespace lockstep::comm
