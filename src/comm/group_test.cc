#include "comm/group.h"

#include <gtest/gtest.h>

#include "base/fp_env.h"
#include "comm/test_util.h"

namespace lockstep::comm {
namespace {

using testing::Modes;
using testing::Options;
using testing::StepLoop;

bool Contains(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

TEST(Fault, ParsesItsKindsAndNamesMistakes) {
  auto kill = ParseFault("kill:rank=1,step=20");
  ASSERT_TRUE(kill.ok());
  EXPECT_TRUE(kill->Hits(FaultKind::kKill, 1, 20));
  EXPECT_FALSE(kill->Hits(FaultKind::kKill, 1, 21));
  EXPECT_TRUE(ParseFault("stall:step=0,rank=0").ok());
  EXPECT_TRUE(ParseFault("corrupt:rank=3,step=7").ok());
  auto round = ParseFault("round:step=20");
  ASSERT_TRUE(round.ok());
  EXPECT_EQ(round->kind, FaultKind::kRound);
  EXPECT_EQ(round->rank, -1);
  EXPECT_EQ(round->step, 20u);
  EXPECT_EQ(ParseFault("")->kind, FaultKind::kNone);
  for (const char* bad :
       {"kill", "kill:", "burn:rank=1,step=2", "kill:rank=1", "kill:step=1", "kill:rank=-1,step=2",
        "kill:rank=x,step=2", "kill:rank=1,step=", "kill:rank=1,step=2,more=3", "kill:rank=1,rank=2,step=3",
        "kill:rank=99999999999,step=1", "round", "round:", "round:rank=0,step=3"}) {
    auto plan = ParseFault(bad);
    EXPECT_FALSE(plan.ok()) << bad;
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST(Group, RefusesBadOptions) {
  GroupOptions options;
  options.world_size = 0;
  EXPECT_FALSE(Group::Create(options).ok());
  options = {.world_size = 8, .threads_per_rank = 1 << 20};
  EXPECT_FALSE(Group::Create(options).ok());
  options = {.timeout_secs = 0};
  EXPECT_FALSE(Group::Create(options).ok());
  options = {.shared_bytes = ~size_t{0} - 100};
  EXPECT_EQ(Group::Create(options).status().code(), StatusCode::kOutOfMemory);
  options = {.world_size = 2, .fault = "kill:rank=2,step=0"};
  EXPECT_EQ(Group::Create(options).status().code(), StatusCode::kInvalidArgument);
}

TEST(Group, SharedAreaIsZeroAndPageAligned) {
  auto group = Group::Create(Options(2, 2, RankMode::kThread));
  ASSERT_TRUE(group.ok());
  auto area = (*group)->shared();
  EXPECT_EQ(area.size(), size_t{1} << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(area.data()) % 4096, 0u);
  for (std::byte b : area) ASSERT_EQ(b, std::byte{0});
  EXPECT_TRUE((*group)->error().ok());
}

TEST(Group, FirstFaultIsKept) {
  auto group = Group::Create(Options(1, 1, RankMode::kThread));
  (*group)->Poison(PeerLost("first"));
  (*group)->Poison(Internal("second"));
  EXPECT_EQ((*group)->error().code(), StatusCode::kPeerLost);
  EXPECT_EQ((*group)->error().message(), "first");
}

// Plain memory, so that the thread sanitizer would see a barrier that orders nothing.
TEST(Member, SyncWorldOrdersPlainMemory) {
  for (RankMode mode : Modes()) {
    for (int world : {2, 3, 5}) {
      for (int threads : {1, 2}) {
        auto step = [](Member& m, uint32_t) {
          auto* words = reinterpret_cast<uint64_t*>(m.group().shared().data());
          const int members = m.world_size() * m.threads_per_rank();
          const int me = m.rank() * m.threads_per_rank() + m.thread();
          for (uint64_t n = 1; n <= 300; ++n) {
            words[me * 16] = n;
            testing::RandomDelay(n * 131 + me);
            if (n % 2 == 0) {
              if (!m.SyncWorld(SyncOp::kBarrier)) return;
            } else {
              m.ArriveWorld(SyncOp::kBarrier);
              if (!m.WaitWorld(SyncOp::kBarrier)) return;
            }
            for (int other = 0; other < members; ++other) {
              if (words[other * 16] != n) m.group().Poison(Internal("a barrier let a member through"));
            }
            if (!m.SyncRank(SyncOp::kBarrier)) return;
            if (!m.SyncWorld(SyncOp::kEnd)) return;
          }
        };
        auto pool = RankPool::Start(Options(world, threads, mode), StepLoop(step));
        ASSERT_TRUE(pool.ok()) << pool.status().message();
        for (int round = 0; round < 3; ++round) {
          (*pool)->leader().PostCommand(round);
          step((*pool)->leader(), round);
        }
        EXPECT_EQ((*pool)->leader().epoch(), 3u * 600);
        Status status = (*pool)->Join();
        EXPECT_TRUE(status.ok()) << status.message();
      }
    }
  }
}

TEST(Member, WaitsAreCounted) {
  auto step = [](Member& m, uint32_t) {
    if (!m.is_leader()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    m.SyncWorld(SyncOp::kAllReduce);
  };
  auto pool = RankPool::Start(Options(2, 1, RankMode::kThread), StepLoop(step));
  ASSERT_TRUE(pool.ok());
  (*pool)->leader().PostCommand(1);
  step((*pool)->leader(), 1);
  EXPECT_GT((*pool)->leader().TakeWaitTicks(), 1000u);
  EXPECT_EQ((*pool)->leader().TakeWaitTicks(), 0u);
  EXPECT_TRUE((*pool)->Join().ok());
}

TEST(Member, MeetingInDifferentOperationsIsNamed) {
  auto step = [](Member& m, uint32_t) { m.SyncWorld(m.rank() == 0 ? SyncOp::kLogits : SyncOp::kVote); };
  auto pool = RankPool::Start(Options(2, 1, RankMode::kThread), StepLoop(step));
  ASSERT_TRUE(pool.ok());
  (*pool)->leader().PostCommand(1);
  step((*pool)->leader(), 1);
  Status status = (*pool)->Join();
  EXPECT_EQ(status.code(), StatusCode::kInternal) << status.message();
  EXPECT_TRUE(Contains(status, "logits") && Contains(status, "vote")) << status.message();
}

TEST(Member, CommandsCarryTheirValueAndAMissedOneIsNamed) {
  auto step = [](Member& m, uint32_t command) {
    auto* sum = reinterpret_cast<uint64_t*>(m.group().shared().data()) + 8 * m.rank();
    *sum += command;
    m.SyncWorld(SyncOp::kEnd);
  };
  auto pool = RankPool::Start(Options(3, 1, RankMode::kThread), StepLoop(step));
  ASSERT_TRUE(pool.ok());
  for (uint32_t c = 1; c <= 500; ++c) {
    (*pool)->leader().PostCommand(c);
    step((*pool)->leader(), c);
  }
  auto* sums = reinterpret_cast<uint64_t*>((*pool)->group().shared().data());
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(sums[8 * rank], 500u * 501 / 2);
  EXPECT_TRUE((*pool)->Join().ok());
}

TEST(Vote, AllLearnTheFirstFailingRank) {
  for (RankMode mode : Modes()) {
    auto step = [](Member& m, uint32_t) {
      Status yes = Vote(m, OkStatus());
      if (!yes.ok()) m.group().Poison(yes);
      Status mine = m.rank() >= 2 ? OutOfMemory("no room for " + std::to_string(m.rank())) : OkStatus();
      Status all = Vote(m, mine);
      if (all.code() != StatusCode::kOutOfMemory || all.message() != "rank 2: no room for 2") {
        m.group().Poison(Internal("wrong verdict: " + all.message()));
      }
      if (!Vote(m, OkStatus()).ok()) m.group().Poison(Internal("an old vote was counted"));
    };
    auto pool = RankPool::Start(Options(4, 2, mode), StepLoop(step));
    ASSERT_TRUE(pool.ok());
    (*pool)->leader().PostCommand(1);
    step((*pool)->leader(), 1);
    Status status = (*pool)->Join();
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Digest, EqualOnesPassAndADifferentOneIsPrinted) {
  for (RankMode mode : Modes()) {
    GroupOptions options = Options(3, 1, mode);
    options.fault = "corrupt:rank=2,step=40";
    auto step = [](Member& m, uint32_t) {
      for (uint64_t n = 0; n < 50; ++n) {
        m.PublishDigest(n * 77 + (m.FaultHere(FaultKind::kCorrupt, n) ? 1 : 0));
        testing::RandomDelay(n * 3 + m.rank());
        if (!m.SyncWorld(SyncOp::kDigest) || !m.CheckDigests(n)) return;
      }
    };
    auto pool = RankPool::Start(options, StepLoop(step));
    ASSERT_TRUE(pool.ok());
    (*pool)->leader().PostCommand(1);
    step((*pool)->leader(), 1);
    Status status = (*pool)->Join();
    EXPECT_EQ(status.code(), StatusCode::kPeerLost);
    EXPECT_TRUE(Contains(status, "ranks disagree at step 40: rank")) << status.message();
    EXPECT_TRUE(Contains(status, "rank 2 digest 0000000000000c09")) << status.message();
  }
}

TEST(FpEnv, EveryMemberRunsWithTheSameControlWord) {
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8040u);
  EXPECT_FALSE(CheckFpEnv());
#endif
  auto step = [](Member& m, uint32_t) {
    if (!CheckFpEnv()) m.group().Poison(Internal("control word"));
    m.SyncWorld(SyncOp::kEnd);
  };
  auto pool = RankPool::Start(Options(2, 2, RankMode::kThread), StepLoop(step));
  ASSERT_TRUE(pool.ok());
  (*pool)->leader().PostCommand(1);
  step((*pool)->leader(), 1);
  EXPECT_TRUE(CheckFpEnv());
  EXPECT_TRUE((*pool)->Join().ok());
}

}  // namespace
}  // namespace lockstep::comm
