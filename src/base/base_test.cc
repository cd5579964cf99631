#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bits.h"
#include "base/mmap_file.h"
#include "base/result.h"

namespace lockstep {
namespace {

TEST(Status, ContextGoesInFrontAndOkStaysOk) {
  EXPECT_EQ(CorruptFile("bad magic").WithContext("a.gguf").message(), "a.gguf: bad magic");
  EXPECT_TRUE(OkStatus().WithContext("a.gguf").ok());
}

TEST(Status, ExitCodesAreTheDocumentedOnes) {
  EXPECT_EQ(ExitCode(StatusCode::kInvalidArgument), 2);
  EXPECT_EQ(ExitCode(StatusCode::kCorruptFile), 3);
  EXPECT_EQ(ExitCode(StatusCode::kOutOfMemory), 4);
  EXPECT_EQ(ExitCode(StatusCode::kPeerLost), 5);
  EXPECT_EQ(ExitCode(StatusCode::kMismatch), 7);
  EXPECT_EQ(ExitCode(StatusCode::kInterrupted), 130);
}

Result<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("odd");
  return x / 2;
}

Result<int> Quarter(int x) {
  LS_ASSIGN_OR_RETURN(int half, Half(x));
  return Half(half);
}

TEST(Result, ATemporarysValueOutlivesIt) {
  static_assert(std::is_same_v<decltype(Half(2).value()), int>);
  int sum = 0;
  for (int x : Result<std::vector<int>>(std::vector<int>{1, 2, 3}).value()) sum += x;
  EXPECT_EQ(sum, 6);
}

TEST(Result, PropagatesTheFirstError) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_EQ(Quarter(5).status().code(), StatusCode::kInvalidArgument);
}

TEST(Bits, CheckedArithmeticCatchesOverflow) {
  uint64_t out = 7;
  EXPECT_FALSE(CheckedMul(1ull << 60, 1ull << 10, &out));
  EXPECT_FALSE(CheckedAdd(~0ull, 1, &out));
  EXPECT_TRUE(CheckedMul(3, 5, &out));
  EXPECT_EQ(out, 15u);
}

TEST(MmapFile, ReadsAFileAndNamesAMissingOne) {
  std::string path = testing::TempDir() + "mmap_file_test";
  std::ofstream(path) << "abc";
  auto file = MmapFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->bytes().size(), 3u);
  EXPECT_EQ((*file)->bytes()[2], 'c');
  auto missing = MmapFile::Open(path + ".absent");
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find(path + ".absent"), std::string::npos);
  EXPECT_EQ(MmapFile::Open(testing::TempDir()).status().code(), StatusCode::kCorruptFile);
  const std::string pipe = path + ".pipe";  // that nobody writes to
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(MmapFile::Open(pipe).status().code(), StatusCode::kCorruptFile);
  std::remove(pipe.c_str());
}

TEST(MmapFile, DroppedPagesComeBackAsTheyWere) {
  std::string path = testing::TempDir() + "mmap_file_drop_test";
  std::string text;
  for (int i = 0; text.size() < 20000; ++i) text += std::to_string(i);
  std::ofstream(path) << text;
  auto file = MmapFile::Open(path);
  ASSERT_TRUE(file.ok());
  const std::span<const uint8_t> bytes = (*file)->bytes();
  for (auto [begin, count] : {std::pair<size_t, size_t>{5000, 9000}, {0, 0}, {0, text.size()}, {text.size(), 0}}) {
    EXPECT_TRUE((*file)->Holds(bytes.subspan(begin, count)));
    (*file)->Drop(bytes.subspan(begin, count));
    (*file)->Fetch(bytes.subspan(begin, count));
    EXPECT_EQ(std::string(bytes.begin(), bytes.end()), text);
  }
  EXPECT_FALSE((*file)->Holds({bytes.data() + 1, bytes.size()}));
  const uint8_t elsewhere[2] = {};
  EXPECT_FALSE((*file)->Holds(elsewhere));
}

TEST(CheckDeathTest, PrintsBothValues) {
  int rows = 3;
  EXPECT_DEATH(LS_CHECK_EQ(rows, 4), "rows == 4: 3 against 4");
}

}  // namespace
}  // namespace lockstep
