#include "engine/shipped_heads.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lockstep::engine {
namespace {

namespace fs = std::filesystem;

class ShippedHeads : public ::testing::Test {
 protected:
  ShippedHeads() : root_(fs::temp_directory_path() / ("lockstep-heads-" + std::to_string(getpid()))) {
    fs::create_directories(root_);
  }
  ~ShippedHeads() override { fs::remove_all(root_); }

  void Put(const std::string& name, const std::string& config) {
    fs::create_directories(root_ / name);
    std::ofstream(root_ / name / "config.json") << config;
  }
  std::string Find(const std::string& fingerprint) const { return FindHeadIn(root_.string(), fingerprint); }

  fs::path root_;
};

TEST_F(ShippedHeads, TheHeadThatNamesTheModelIsFound) {
  Put("b", R"({"lockstep_targets": ["0011", "2233"]})");
  Put("c", R"({"lockstep_targets": ["4455"]})");
  EXPECT_EQ(Find("2233"), (root_ / "b").string());
  EXPECT_EQ(Find("4455"), (root_ / "c").string());
  EXPECT_EQ(Find("6677"), "");
  EXPECT_EQ(Find(""), "");
}

TEST_F(ShippedHeads, OfTwoTheFirstByName) {
  Put("z", R"({"lockstep_targets": ["0011"]})");
  Put("a", R"({"lockstep_targets": ["0011"]})");
  EXPECT_EQ(Find("0011"), (root_ / "a").string());
}

TEST_F(ShippedHeads, WhatCannotBeReadIsPassedOver) {
  Put("a", "{");
  Put("b", R"({"hidden_size": 8})");
  Put("c", R"({"lockstep_targets": "0011"})");
  fs::create_directories(root_ / "d" / "config.json");
  std::ofstream(root_ / "e") << "a file";
  Put("f", R"({"lockstep_targets": ["0011"]})");
  EXPECT_EQ(Find("0011"), (root_ / "f").string());
  EXPECT_EQ(FindHeadIn((root_ / "nothing").string(), "0011"), "");
}

}  // namespace
}  // namespace lockstep::engine
