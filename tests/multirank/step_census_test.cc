// Inside a step there is no allocation, and no system call while ranks x threads fit the cores.
//
// A child process runs the steps; this one traces all its threads and forked ranks, and counts each system call between
// two marks. A traced thread stops only where it enters the system, so watching costs the steps nothing. Allocations are
// counted by a malloc of our own, in memory that the forked ranks share.
//
// A member that waits longer than its spin (5 ms) parks, which is a futex call. On a quiet machine none does. On a busy
// one another program may hold the awaited core: then futex calls up to 1 % of the steps are let pass, and said.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <map>
#include <new>

#include "device/cpu/affinity.h"
#include "step/test_util.h"

namespace {

struct Shared {
  std::atomic<int> counting;
  std::atomic<uint64_t> allocations;
};
Shared* shared = nullptr;
bool watched = false;  // this process is the child, or one that the child forked

void CountAllocation() {
  if (watched && shared->counting.load(std::memory_order_relaxed)) shared->allocations.fetch_add(1);
}

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// operator new ends here too.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  CountAllocation();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  CountAllocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  CountAllocation();
  return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  CountAllocation();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  CountAllocation();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  CountAllocation();
  *out = __libc_memalign(alignment, bytes);
  return *out ? 0 : ENOMEM;
}
}
#endif

namespace lockstep::step {
namespace {

using testing::Session;
using testing::SomeTokens;
using testing::TinyModel;

constexpr uint64_t kMark = 0x4c6f636b73746570;  // in the first argument of a getppid, which takes none
constexpr int kSteps = 1200;

void Mark(int counting) {
  shared->counting.store(counting);
  syscall(SYS_getppid, kMark, counting);
}

struct Census {
  int exit_status = -1;
  std::map<uint64_t, int> calls;  // by number, between the marks
  int num_marks = 0;
  uint64_t allocations = 0;
  size_t num_tasks = 0;  // threads and processes seen

  int Futexes() const { return calls.count(SYS_futex) ? calls.at(SYS_futex) : 0; }
  int Others() const {
    int sum = 0;
    for (auto [number, count] : calls) sum += number == SYS_futex ? 0 : count;
    return sum;
  }
  std::string Text() const {
    std::string text;
    for (auto [number, count] : calls)
      text += "system call " + std::to_string(number) + ": " + std::to_string(count) + "; ";
    return text;
  }
};

bool MayTrace() {
  const pid_t child = fork();
  if (child == 0) _exit(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Runs `body` in a child and watches it and all that it starts.
Census Watch(const std::function<void()>& body) {
  Census census;
  shared->allocations = 0;
  shared->counting = 0;
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    watched = true;
    body();
    _exit(0);
  }
  int status = 0;
  LS_CHECK_EQ(waitpid(child, &status, 0), child);
  const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_EXITKILL;
  LS_CHECK_EQ(ptrace(PTRACE_SETOPTIONS, child, nullptr, options), 0);
  ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
  std::map<pid_t, bool> tasks = {{child, true}};
  bool inside = false;
  for (;;) {
    const pid_t task = waitpid(-1, &status, __WALL);
    if (task < 0) break;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (task == child) census.exit_status = status;
      continue;
    }
    long deliver = WSTOPSIG(status);
    if (!tasks[task] || status >> 16 != 0) {  // the first stop of a new task, or a clone
      tasks[task] = true;
      deliver = 0;
    } else if (deliver == (SIGTRAP | 0x80)) {
      deliver = 0;
      __ptrace_syscall_info info = {};
      ptrace(static_cast<__ptrace_request>(PTRACE_GET_SYSCALL_INFO), task, sizeof info, &info);
      if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        if (info.entry.nr == SYS_getppid && info.entry.args[0] == kMark) {
          inside = info.entry.args[1] != 0;
          ++census.num_marks;
        } else if (inside) {
          ++census.calls[info.entry.nr];
        }
      }
    }
    ptrace(PTRACE_SYSCALL, task, nullptr, deliver);
  }
  census.allocations = shared->allocations;
  census.num_tasks = tasks.size();
  return census;
}

// Plain and verify rows, greedy and sampled, across page borders, with keys moved after trees.
void OneStep(Session& session, int number, std::span<const int32_t> tokens) {
  const int committed = 60 + number % 120;
  StepInput& in = session.runner().input();
  DraftTree tree;
  tree.Reset(tokens[size_t(committed)]);
  if (number % 3 == 1) {
    for (int i = 0; i < 3; ++i) tree.Add(i, tokens[size_t(committed + 1 + i)]);
  } else if (number % 3 == 2) {
    for (int i = 0; i < 6; ++i) tree.Add(i / 2, tokens[size_t(committed + 1 + i)]);
    in.copies[in.num_copies++] = {0, committed - 2, committed - 3};
  }
  AddTree(in, 0, tree, committed, session.runner().pages_per_sequence());
  StepSequence& s = in.sequences[0];
  s.sampling = {};
  s.num_prompt_tokens = 40;
  s.num_output_tokens = committed - 40;
  if (number % 2) {
    s.sampling.temperature = 0.8f;
    s.sampling.top_p = 0.95f;
    s.sampling.repetition_penalty = 1.1f;
    s.sampling.seed = 7;
  }
  LS_CHECK(session.runner().Run().ok());
}

void RunSteps(const std::string& path, const StepOptions& options, int planted_allocations, int planted_calls) {
  Session session(path, options);
  const std::vector<int32_t> tokens = SomeTokens(200, session.vocab(), 1);
  std::copy(tokens.begin(), tokens.end(), session.runner().history(0));
  session.Feed(0, tokens, 0, 16);
  for (int i = 0; i < 60; ++i) OneStep(session, i, tokens);
  Mark(1);
  for (int i = 0; i < kSteps; ++i) {
    OneStep(session, i, tokens);
    if (i < planted_allocations) {
      int* volatile seen_by_nobody = new int(i);  // volatile, or the compiler leaves the pair out
      delete seen_by_nobody;
    }
    if (i < planted_calls) syscall(SYS_getpid);
  }
  Mark(0);
}

class StepCensus : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer allocates and enters the system for itself";
#endif
    if (!MayTrace()) GTEST_SKIP() << "this system does not let a process trace its child";
    cpus_ = device::cpu::AllowedCpus().value();
    if (cpus_.size() < 2) GTEST_SKIP() << "needs two CPUs: with fewer, waits park";
    if (!shared) {
      void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      shared = new (memory) Shared{};
    }
    path_ = TinyModel("seed=1, dtype='Q4_1'");
  }

  StepOptions Options(int tp, int threads, comm::RankMode mode) {
    StepOptions options;
    options.tp = tp;
    options.threads = threads;
    options.rank_mode = mode;
    int next = 0;
    for (int r = 0; r < tp; ++r) {
      options.cpus.emplace_back();
      for (int t = 0; t < threads; ++t) options.cpus.back().push_back(cpus_[size_t(next++)]);
    }
    return options;
  }

  void ExpectQuiet(int tp, int threads, comm::RankMode mode) {
    const StepOptions options = Options(tp, threads, mode);
    Census census;
    for (int attempt = 0; attempt < 8; ++attempt) {  // another program may want the cores for a while
      census = Watch([&] { RunSteps(path_, options, 0, 0); });
      ASSERT_EQ(census.exit_status, 0);
      ASSERT_EQ(census.num_marks, 2);
      ASSERT_GE(census.num_tasks, size_t(tp * threads));
      ASSERT_EQ(census.allocations, 0u);
      ASSERT_EQ(census.Others(), 0) << census.Text();
      if (census.Futexes() == 0) break;
    }
    EXPECT_LE(census.Futexes(), kSteps / 100) << "of " << kSteps << " steps";
    if (census.Futexes() > 0) printf("the machine is busy: %d futex calls in %d steps\n", census.Futexes(), kSteps);
  }

  std::vector<int> cpus_;
  std::string path_;
};

TEST_F(StepCensus, TwoRanksAsThreads) {
  ExpectQuiet(2, 1, comm::RankMode::kThread);
}
TEST_F(StepCensus, TwoRanksAsProcesses) {
  ExpectQuiet(2, 1, comm::RankMode::kProcess);
}
TEST_F(StepCensus, OneRankOfTwoThreads) {
  ExpectQuiet(1, 2, comm::RankMode::kThread);
}

TEST_F(StepCensus, WouldSeeAnAllocationAndACall) {
  const StepOptions options = Options(2, 1, comm::RankMode::kProcess);
  const Census census = Watch([&] { RunSteps(path_, options, 3, 5); });
  EXPECT_EQ(census.allocations, 3u);
  EXPECT_EQ(census.Others(), 5) << census.Text();
}

}  // namespace
}  // namespace lockstep::step
