#include "engine/finish.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

namespace lockstep::engine {
namespace {

using Pieces = std::vector<std::pair<int32_t, std::string>>;

struct Outcome {
  std::vector<int32_t> tokens;
  std::string text;      // all of it
  std::string streamed;  // joined over the rounds
  std::string reason;
  std::string matched;
  bool operator==(const Outcome&) const = default;
};

// The engine's emit loop: rounds of the given sizes (the last repeats), the stream read after each round.
Outcome Generate(const FinishOptions& options, const Pieces& pieces, const std::vector<int>& run_sizes) {
  EXPECT_TRUE(ValidateFinish(options, 100000).ok());
  FinishTracker tracker(options);
  Outcome outcome;
  size_t i = 0;
  for (size_t round = 0; i < pieces.size() && !tracker.verdict().finished; ++round) {
    const int size = run_sizes[std::min(round, run_sizes.size() - 1)];
    for (int k = 0; k < size && i < pieces.size(); ++k, ++i) {
      outcome.tokens.push_back(pieces[i].first);
      if (tracker.Push(pieces[i].first, pieces[i].second).finished) break;
    }
    outcome.streamed += tracker.TakeText();
  }
  EXPECT_EQ(tracker.completion_tokens(), static_cast<int64_t>(outcome.tokens.size()));
  outcome.text = tracker.text();
  outcome.reason = FinishReasonName(tracker.verdict().reason);
  outcome.matched = tracker.matched_stop();
  return outcome;
}

FinishOptions Options(int64_t max_tokens) {
  FinishOptions options;
  options.max_tokens = max_tokens;
  options.context_room = 1000;
  return options;
}

// Case A1: the accepted run [10, 11, STOP, 20, 21, 22] with max_tokens 5, the stop at each place, as text, id and eos.
TEST(Finish, CaseA1AStopInsideARunThatCrossesTheLimit) {
  for (int where : {0, 2, 4, 5}) {
    for (int kind = 0; kind < 3; ++kind) {
      Pieces pieces;
      const int ids[] = {10, 11, 20, 21, 22};
      for (int i = 0; i < 5; ++i) pieces.push_back({ids[i], "t" + std::to_string(ids[i]) + " "});
      pieces.insert(pieces.begin() + where, {77, "STOP"});
      FinishOptions options = Options(5);
      if (kind == 0) options.stop_strings = {"STOP"};
      if (kind == 1) options.stop_token_ids = {77};
      if (kind == 2) options.eos_ids = {77};
      const Outcome run = Generate(options, pieces, {6});
      if (where < 5) {
        EXPECT_EQ(run.reason, "stop");
        EXPECT_EQ(run.tokens.size(), where + 1u);
        EXPECT_EQ(run.tokens.back(), 77);
      } else {
        EXPECT_EQ(run.reason, "length");
        EXPECT_EQ(run.tokens, (std::vector<int32_t>{10, 11, 20, 21, 22}));
      }
      EXPECT_EQ(run.text.find("STOP"), std::string::npos);
      std::string expected;
      for (int i = 0; i < std::min(where, 5); ++i) expected += pieces[i].second;
      EXPECT_EQ(run.text, expected);
      EXPECT_EQ(run.streamed, run.text);
      EXPECT_EQ(Generate(options, pieces, {1}), run);
    }
  }
}

TEST(Finish, NothingIsTakenAfterTheEnd) {
  FinishOptions options = Options(10);
  options.stop_token_ids = {5};
  FinishTracker tracker(options);
  tracker.Push(1, "a");
  EXPECT_TRUE(tracker.Push(5, "x").finished);
  EXPECT_EQ(tracker.Push(6, "leak"), (Verdict{true, FinishReason::kStop}));
  EXPECT_EQ(tracker.text(), "a");
  EXPECT_EQ(tracker.completion_tokens(), 2);
}

// Case F1.
TEST(Finish, CaseF1TheStartOfAStopStringIsHeldBack) {
  FinishOptions options = Options(100);
  options.stop_strings = {"DEFGHIJ"};
  FinishTracker tracker(options);
  for (const char* piece : {"DEF", "G", "HI"}) {
    EXPECT_FALSE(tracker.Push(1, piece).finished);
    EXPECT_EQ(tracker.TakeText(), "");
  }
  EXPECT_EQ(tracker.Push(1, "J"), (Verdict{true, FinishReason::kStop}));
  EXPECT_EQ(tracker.TakeText(), "");
  EXPECT_EQ(tracker.text(), "");
  EXPECT_EQ(tracker.matched_stop(), "DEFGHIJ");

  // The second run: it was no stop after all, so all of it comes, at the latest at the end.
  options.max_tokens = 3;
  FinishTracker other(options);
  other.Push(1, "DEF");
  other.Push(1, "G");
  EXPECT_EQ(other.TakeText(), "");
  EXPECT_EQ(other.Push(1, "HX"), (Verdict{true, FinishReason::kLength}));
  EXPECT_EQ(other.TakeText(), "DEFGHX");

  // Held text is flushed when a limit, an eos or a stop id ends the text in the middle of a possible stop.
  options.eos_ids = {9};
  FinishTracker third(options);
  third.Push(1, "xDEF");
  EXPECT_EQ(third.TakeText(), "x");
  EXPECT_EQ(third.held_text(), "DEF");
  EXPECT_EQ(third.Push(9, "</s>"), (Verdict{true, FinishReason::kStop}));
  EXPECT_EQ(third.TakeText(), "DEF");
}

TEST(Finish, StopStringsThatOverlap) {
  auto text = [](std::vector<std::string> stops, Pieces pieces) {
    FinishOptions options = Options(100);
    options.stop_strings = std::move(stops);
    const Outcome outcome = Generate(options, pieces, {1});
    return outcome.text + "|" + outcome.matched;
  };
  EXPECT_EQ(text({"..", "..."}, {{1, "a..."}}), "a|..");  // complete first
  EXPECT_EQ(text({"...", ".."}, {{1, "a."}, {1, "."}, {1, "."}}), "a|..");
  EXPECT_EQ(text({"bc", "abc"}, {{1, "xabc"}}), "x|abc");  // complete at the same byte: the longest
  EXPECT_EQ(text({"abcX", "bc"}, {{1, "a"}, {1, "b"}, {1, "c"}}), "a|bc");
  EXPECT_EQ(text({"aab"}, {{1, "aaa"}, {1, "ab"}}),
            "aa|aab");  // the match starts inside a failed one
  EXPECT_EQ(text({"abab!"}, {{1, "ababab!"}}), "ab|abab!");
  // A stop that begins in the middle of a token, ends in the middle of another and holds multi-byte characters.
  EXPECT_EQ(text({"\xc3\xa9n\xf0\x9f\x98\x80"}, {{1, "caf\xc3\xa9"}, {2, "n"}, {3, "\xf0\x9f\x98\x80 tail"}}),
            "caf|\xc3\xa9n\xf0\x9f\x98\x80");
  EXPECT_EQ(text({"\xc3\xa9n"}, {{1, "caf\xc3"}, {2, "\xa9"}, {3, "m"}}), "caf\xc3\xa9m|");
}

TEST(Finish, LimitsAndEos) {
  FinishOptions options = Options(0);
  EXPECT_EQ(FinishTracker(options).verdict(), (Verdict{true, FinishReason::kLength}));
  options = Options(-1);
  options.context_room = 0;
  EXPECT_TRUE(FinishTracker(options).verdict().finished);
  options.context_room = 3;
  EXPECT_EQ(Generate(options, {{1, "a"}, {2, "b"}, {3, "c"}, {4, "d"}}, {4}).text, "abc");
  options.max_tokens = 2;
  EXPECT_EQ(Generate(options, {{1, "a"}, {2, "b"}, {3, "c"}, {4, "d"}}, {4}).text, "ab");
  options.max_tokens = 50;
  EXPECT_EQ(Generate(options, {{1, "a"}, {2, "b"}, {3, "c"}, {4, "d"}}, {4}).reason, "length");
  options.eos_ids = {2, 3};
  EXPECT_EQ(Generate(options, {{1, "a"}, {3, ""}, {2, ""}}, {3}).reason, "stop");
  options.ignore_eos = true;
  EXPECT_EQ(Generate(options, {{1, "a"}, {3, ""}, {2, ""}}, {3}).tokens.size(), 3u);
  options.stop_token_ids = {2};
  options.context_room = 9;
  EXPECT_EQ(Generate(options, {{1, "a"}, {3, ""}, {2, ""}, {4, "d"}}, {4}).reason, "stop");
}

TEST(Finish, BadOptionsAreNamed) {
  auto text = [](auto change) {
    FinishOptions options = Options(4);
    change(options);
    Status status = ValidateFinish(options, 512);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  using O = FinishOptions;
  EXPECT_EQ(text([](O& o) { o.stop_strings = {"a", ""}; }), "stop[1]: is empty");
  EXPECT_NE(text([](O& o) { o.stop_strings.assign(17, "a"); }).find("17 entries"), std::string::npos);
  EXPECT_NE(text([](O& o) { o.stop_strings = {std::string(1025, 'a')}; }).find("1025 bytes"), std::string::npos);
  EXPECT_NE(text([](O& o) { o.stop_token_ids = {151645}; }).find("stop_token_ids[0]: 151645"), std::string::npos);
  EXPECT_NE(text([](O& o) { o.eos_ids = {1, -1}; }).find("eos_ids[1]: -1"), std::string::npos);
  EXPECT_NE(text([](O& o) { o.max_tokens = -2; }).find("max_tokens: -2"), std::string::npos);
  EXPECT_NE(text([](O& o) { o.context_room = -7; }).find("7 tokens too long"), std::string::npos);
}

// Brute force over the whole text: the first byte at which any stop string ends, and the longest one there.
std::string SlowText(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& s : stops)
      if (s.size() <= end && text.compare(end - s.size(), s.size(), s) == 0) longest = std::max(longest, s.size());
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(Finish, EveryPartitionIntoRunsGivesTheSame) {
  std::mt19937 rng(2);
  int num_stops = 0, num_lengths = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    auto word = [&](int most) {
      std::string s(1 + rng() % most, 'a');
      for (char& c : s) c = static_cast<char>('a' + rng() % 3);
      return s;
    };
    FinishOptions options = Options(1 + rng() % 14);
    options.context_room = 1 + rng() % 20;
    for (int i = rng() % 4; i > 0; --i) options.stop_strings.push_back(word(5));
    if (rng() % 4 == 0) options.eos_ids = {static_cast<int32_t>(rng() % 12)};
    if (rng() % 4 == 0) options.stop_token_ids = {static_cast<int32_t>(rng() % 12)};
    Pieces pieces;
    for (int i = 0; i < 20; ++i) pieces.push_back({rng() % 12, rng() % 5 ? word(4) : ""});

    const Outcome plain = Generate(options, pieces, {1});
    std::vector<int> sizes;
    for (int i = 0; i < 8; ++i) sizes.push_back(1 + rng() % 6);
    ASSERT_EQ(Generate(options, pieces, sizes), plain);
    ASSERT_EQ(Generate(options, pieces, {20}), plain);
    ASSERT_EQ(plain.streamed, plain.text);

    // The text against brute force over the tokens that were taken.
    std::string raw;
    for (size_t i = 0; i < plain.tokens.size(); ++i) {
      const bool by_id = plain.reason == "stop" && plain.matched.empty() && i + 1 == plain.tokens.size();
      if (!by_id) raw += pieces[i].second;
    }
    ASSERT_EQ(plain.text, SlowText(raw, options.stop_strings));
    (plain.reason == "stop" ? num_stops : num_lengths) += 1;
  }
  EXPECT_GT(num_stops, 3000);
  EXPECT_GT(num_lengths, 3000);
}

// What was streamed is never taken back: at every moment it is a prefix of the final text.
TEST(Finish, StreamedTextIsAlwaysAPrefixOfTheAnswer) {
  std::mt19937 rng(8);
  for (int trial = 0; trial < 3000; ++trial) {
    FinishOptions options = Options(30);
    for (int i = 0; i < 3; ++i) {
      std::string s(1 + rng() % 6, 'a');
      for (char& c : s) c = static_cast<char>('a' + rng() % 2);
      options.stop_strings.push_back(s + "c");
    }
    FinishTracker tracker(options);
    std::vector<std::string> seen;
    while (!tracker.verdict().finished) {
      std::string piece(rng() % 4, 'a');
      for (char& c : piece) c = static_cast<char>('a' + rng() % (rng() % 8 ? 2 : 3));
      tracker.Push(1, piece);
      seen.push_back(tracker.text());
      ASSERT_LT(tracker.held_text().size(), 7u);
    }
    for (const std::string& s : seen) ASSERT_EQ(tracker.text().compare(0, s.size(), s), 0);
  }
}

}  // namespace
}  // namespace lockstep::engine
