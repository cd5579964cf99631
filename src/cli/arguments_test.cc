#include "cli/arguments.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

TEST(Arguments, TpMayBeWrittenWithOneDash) {
  EXPECT_EQ(NormaliseArguments({"run", "-tp", "2"}), (Words{"run", "--tp", "2"}));
  EXPECT_EQ(NormaliseArguments({"run", "-tp=2"}), (Words{"run", "--tp=2"}));
  EXPECT_EQ(NormaliseArguments({"run", "-ctk", "q8_0", "-ctv=q8_0"}),
            (Words{"run", "--cache-type-k", "q8_0", "--cache-type-v=q8_0"}));
}

TEST(Arguments, JsonTakesAFileOnlyWhereTheWordIsFree) {
  EXPECT_EQ(NormaliseArguments({"run", "--json", "-m", "x"}), (Words{"run", "--json=-", "-m", "x"}));
  EXPECT_EQ(NormaliseArguments({"run", "--json", "out.json"}), (Words{"run", "--json=out.json"}));
  EXPECT_EQ(NormaliseArguments({"inspect", "--json", "m.gguf"}), (Words{"inspect", "--json=-", "m.gguf"}));
  EXPECT_EQ(NormaliseArguments({"inspect", "m.gguf", "--json", "o.json"}),
            (Words{"inspect", "m.gguf", "--json=o.json"}));
  EXPECT_EQ(NormaliseArguments({"inspect", "--json", "o.json", "m.gguf"}),
            (Words{"inspect", "--json=o.json", "m.gguf"}));
  EXPECT_EQ(NormaliseArguments({"inspect", "m.gguf", "--json"}), (Words{"inspect", "m.gguf", "--json=-"}));
}

TEST(Arguments, EditDistanceCountsASwapAsOne) {
  EXPECT_EQ(EditDistance("--thraeds", "--threads"), 1);
  EXPECT_EQ(EditDistance("--tmp", "--temp"), 1);
  EXPECT_EQ(EditDistance("", "abc"), 3);
}

}  // namespace
}  // namespace lockstep::cli
