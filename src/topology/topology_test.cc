#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "device/cpu/affinity.h"
#include "topology/cgroup.h"
#include "topology/machine.h"
#include "topology/placement.h"
#include "topology/report.h"

namespace lockstep::topology {
namespace {

// nodes x cores x smt hardware threads, numbered as Linux does: all first threads, then all second ones.
Machine MakeMachine(int nodes, int cores_per_node, int smt) {
  Machine m;
  m.num_packages = nodes;
  const int cores = nodes * cores_per_node;
  for (int core = 0; core < cores; ++core) {
    for (int s = 0; s < smt; ++s) {
      m.cpus.push_back({s * cores + core, core, core / cores_per_node, core / cores_per_node, s, true});
    }
  }
  for (int n = 0; n < nodes; ++n) m.numa_nodes.push_back({n, uint64_t{1} << 34});
  return m;
}

TEST(Placement, RanksSpreadOverNodesAndIslandsAreConsecutive) {
  Machine m = MakeMachine(2, 8, 2);
  Placement p = PlaceRanks(m, 4, 4);
  EXPECT_EQ(p.islands, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  EXPECT_EQ(p.numa_nodes, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(p.cpus[0], (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(p.cpus[2], (std::vector<int>{8, 9, 10, 11}));
  EXPECT_FALSE(p.oversubscribed);
  EXPECT_EQ(p.warning, "");
}

TEST(Placement, NoCpuTwiceWhileThereAreEnough) {
  for (int nodes : {1, 2, 4}) {
    for (int smt : {1, 2}) {
      Machine m = MakeMachine(nodes, 6, smt);
      for (int world = 1; world <= 8; ++world) {
        for (int threads = 1; world * threads <= nodes * 6 * smt; ++threads) {
          Placement p = PlaceRanks(m, world, threads);
          std::set<int> cpus, cores;
          for (const auto& rank : p.cpus) {
            ASSERT_EQ(static_cast<int>(rank.size()), threads);
            for (int cpu : rank) {
              cpus.insert(cpu);
              cores.insert(cpu % (nodes * 6));
            }
          }
          EXPECT_EQ(static_cast<int>(cpus.size()), world * threads);
          EXPECT_FALSE(p.oversubscribed);
          if (world * threads <= nodes * 6) {
            EXPECT_EQ(static_cast<int>(cores.size()), world * threads) << "a core twice while others are idle";
          }
          int next = 0;
          for (const auto& island : p.islands) {
            for (int rank : island) EXPECT_EQ(rank, next++);
          }
          EXPECT_EQ(next, world);
        }
      }
    }
  }
}

TEST(Placement, TooManyThreadsAreFlaggedAndExplained) {
  Machine m = MakeMachine(1, 2, 1);
  Placement p = PlaceRanks(m, 2, 2);
  EXPECT_TRUE(p.oversubscribed);
  EXPECT_NE(p.warning.find("2 ranks x 2 threads on 2 usable CPUs"), std::string::npos) << p.warning;
  m = MakeMachine(1, 8, 1);
  m.quota_cpus = 2.5;
  EXPECT_EQ(m.num_usable_cores(), 2);
  p = PlaceRanks(m, 3, 1);
  EXPECT_TRUE(p.oversubscribed);
  EXPECT_NE(p.warning.find("quota 2.50"), std::string::npos) << p.warning;
  m.quota_cpus = 0.3;
  EXPECT_EQ(m.num_usable_cpus(), 1);
}

TEST(Placement, ForbiddenCpusAreNotUsed) {
  Machine m = MakeMachine(2, 4, 2);
  for (Cpu& c : m.cpus) c.allowed = c.os_index >= 12;  // second threads of node 1 only
  EXPECT_EQ(m.num_allowed_cores(), 4);
  Placement p = PlaceRanks(m, 2, 2);
  EXPECT_EQ(p.cpus, (std::vector<std::vector<int>>{{12, 13}, {14, 15}}));
  EXPECT_EQ(p.islands.size(), 1u);
  EXPECT_EQ(p.warning, "");
}

class CgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("lockstep_cgroup_" + std::to_string(getpid()));
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  std::filesystem::path root_;
};

TEST_F(CgroupTest, VersionTwoTakesTheTightestLevel) {
  Write("proc/self/cgroup", "0::/pod/box");
  Write("sys/fs/cgroup/pod/box/cpu.max", "max 100000");
  Write("sys/fs/cgroup/pod/cpu.max", "250000 100000");
  Write("sys/fs/cgroup/cpu.max", "400000 100000");
  Write("sys/fs/cgroup/pod/box/memory.max", "1073741824");
  Write("sys/fs/cgroup/pod/memory.max", "max");
  CgroupLimits limits = ReadCgroupLimits(root_);
  EXPECT_DOUBLE_EQ(limits.cpus, 2.5);
  EXPECT_EQ(limits.memory_bytes, uint64_t{1} << 30);
}

TEST_F(CgroupTest, VersionOneAndThePathOfTheHost) {
  Write("proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc");
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  CgroupLimits limits = ReadCgroupLimits(root_);
  EXPECT_DOUBLE_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.memory_bytes, 0u);
}

TEST_F(CgroupTest, NothingReadableIsNoLimit) {
  Write("proc/self/cgroup", "broken\n0::/\n5:cpu:");
  Write("sys/fs/cgroup/cpu.max", "-1 100000");
  CgroupLimits limits = ReadCgroupLimits(root_);
  EXPECT_EQ(limits.cpus, 0);
  EXPECT_EQ(ReadCgroupLimits(root_ / "absent").cpus, 0);
}

TEST(Machine, ThisOneIsDiscovered) {
  auto machine = DiscoverMachine();
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_EQ(machine->num_allowed_cpus(), static_cast<int>(device::cpu::AllowedCpus()->size()));
  EXPECT_GE(machine->num_usable_cores(), 1);
  EXPECT_LE(machine->num_allowed_cores(), machine->num_allowed_cpus());
  EXPECT_FALSE(machine->cpu_model.empty());
  EXPECT_EQ(machine->Fingerprint(), DiscoverMachine()->Fingerprint());
  Placement p = PlaceRanks(*machine, 1, 1);
  EXPECT_TRUE(device::cpu::PinThread(p.cpus[0][0]).ok());
  EXPECT_EQ(DiscoverMachine()->num_allowed_cpus(), 1);
}

TEST(Report, TextAndJsonAgree) {
  auto report = MakeReport();
  ASSERT_TRUE(report.ok());
  auto json = nlohmann::json::parse(report->ToJson());
  EXPECT_EQ(json["isa"], device::cpu::CpuIsaName(report->isa));
  EXPECT_EQ(json["allowed_cpus"], report->machine.num_allowed_cpus());
  EXPECT_GT(json["memory_bytes"], 0);
  const std::string text = report->ToText();
  EXPECT_NE(text.find("CUDA: not built in this version"), std::string::npos);
  EXPECT_NE(text.find(report->machine.Fingerprint()), std::string::npos);
  report->machine.cpu_model = "bad \xff name";
  EXPECT_FALSE(nlohmann::json::parse(report->ToJson()).empty());
}

}  // namespace
}  // namespace lockstep::topology
