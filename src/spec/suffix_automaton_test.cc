#include "spec/suffix_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "spec/suffix_corpus.h"

namespace lockstep::spec {
namespace {

using Ints = std::vector<int32_t>;

// Occurrences of `what`, by looking everywhere; last: the end of the last one, counted over all texts.
int SlowCount(const std::vector<Ints>& texts, const Ints& what, int* last) {
  int count = 0, before = 0;
  for (const Ints& text : texts) {
    for (size_t at = 0; at + what.size() <= text.size(); ++at) {
      if (!std::equal(what.begin(), what.end(), text.begin() + static_cast<std::ptrdiff_t>(at))) continue;
      ++count;
      *last = before + static_cast<int>(at + what.size()) - 1;
    }
    before += static_cast<int>(text.size());
  }
  return count;
}

int32_t Walk(const SuffixAutomaton& automaton, const Ints& what) {
  int32_t s = SuffixAutomaton::kRoot;
  for (int32_t token : what) {
    s = automaton.Next(s, token);
    if (s < 0) return -1;
  }
  return s;
}

TEST(SuffixAutomaton, KnowsEveryStringItsCountAndItsLastPlace) {
  std::mt19937 rng(4);
  for (int trial = 0; trial < 300; ++trial) {
    const int alphabet = 2 + static_cast<int>(rng() % 6);
    SuffixAutomaton automaton;
    std::vector<Ints> texts;
    for (int t = 0; t < 1 + trial % 3; ++t) {
      automaton.Break();
      texts.emplace_back();
      const int length = static_cast<int>(rng() % 14);
      for (int i = 0; i < length; ++i) {
        texts.back().push_back(static_cast<int32_t>(rng() % static_cast<unsigned>(alphabet)));
        automaton.Append(texts.back().back());
      }
    }
    for (int probe = 0; probe < 60; ++probe) {
      Ints what(1 + rng() % 5);
      for (int32_t& token : what) token = static_cast<int32_t>(rng() % static_cast<unsigned>(alphabet));
      int last = -1;
      const int count = SlowCount(texts, what, &last);
      const int32_t s = Walk(automaton, what);
      ASSERT_EQ(s >= 0, count > 0);
      if (s < 0) continue;
      ASSERT_EQ(automaton.count(s), count);  // these texts have no longer chains of suffixes than are counted
      ASSERT_EQ(automaton.last_end(s), last);
      ASSERT_GE(automaton.length(s), static_cast<int32_t>(what.size()));
    }
  }
}

TEST(SuffixAutomaton, TheLinkOfTheTextIsItsLongestSuffixThatOccurredBefore) {
  std::mt19937 rng(5);
  for (int trial = 0; trial < 300; ++trial) {
    SuffixAutomaton automaton;
    Ints text;
    for (int i = 0; i < 40; ++i) {
      text.push_back(static_cast<int32_t>(rng() % 3));
      automaton.Append(text.back());
      int longest = 0, last = -1;
      for (int length = 1; length <= i; ++length) {
        if (SlowCount({text}, Ints(text.end() - length, text.end()), &last) > 1) longest = length;
      }
      ASSERT_EQ(automaton.length(automaton.last()), i + 1);
      ASSERT_EQ(automaton.length(automaton.link(automaton.last())), longest);
    }
  }
}

TEST(SuffixAutomaton, GrowsByAConstantATokenWhateverTheText) {
  for (int period : {1, 2, 7, 1000}) {
    SuffixAutomaton automaton;
    for (int i = 0; i < 200000; ++i) automaton.Append(i % period + (i / 5000 % 2) * 3);
    EXPECT_LT(automaton.bytes() / automaton.num_tokens(), 250) << period;
  }
}

TEST(SuffixCorpus, ACursorHoldsTheLongestSuffixOfItsReader) {
  std::mt19937 rng(6);
  for (int trial = 0; trial < 200; ++trial) {
    SuffixCorpus corpus(1 << 20);
    std::vector<Ints> texts;
    SuffixCorpus::Cursor cursor = corpus.Start();
    Ints read;
    for (int i = 0; i < 40; ++i) {
      if (i % 9 == 0) {  // another text joins while the reader is under way
        texts.emplace_back();
        for (int k = 0; k < 12; ++k) texts.back().push_back(static_cast<int32_t>(rng() % 3));
        corpus.Add(texts.back());
      }
      read.push_back(static_cast<int32_t>(rng() % 3));
      corpus.Advance(&cursor, read.back());
      corpus.Settle(&cursor);
      // What it holds does occur and leads on where a look everywhere does.
      const Ints held(read.end() - cursor.length, read.end());
      ASSERT_EQ(Walk(corpus.automaton(), held), cursor.state);
      if (i % 9 != 0) continue;
      // A text that has just joined may hold a longer suffix than the cursor learnt of; a fresh reader finds it.
    }
    SuffixCorpus::Cursor fresh = corpus.Start();
    for (int32_t token : read) corpus.Advance(&fresh, token);
    int longest = 0, last = -1;
    for (int length = 1; length <= 40; ++length) {
      if (SlowCount(texts, Ints(read.end() - length, read.end()), &last) > 0) longest = length;
    }
    ASSERT_EQ(fresh.length, longest);
  }
}

TEST(SuffixCorpus, StaysWithinItsBytesAndForgetsTheOldest) {
  const int64_t bytes = 200000;
  SuffixCorpus corpus(bytes);
  SuffixCorpus::Cursor cursor = corpus.Start();
  for (int text = 0; text < 500; ++text) {
    Ints tokens;
    for (int i = 0; i < 60; ++i) tokens.push_back(text * 100 + i);
    corpus.Add(tokens);
    ASSERT_LE(corpus.automaton().bytes(), bytes) << text;
    ASSERT_GE(Walk(corpus.automaton(), {text * 100 + 3, text * 100 + 4}), 0);
  }
  EXPECT_LT(Walk(corpus.automaton(), {3, 4}), 0);
  EXPECT_FALSE(corpus.Valid(cursor));
  // A text too long for it: its end is kept.
  Ints tokens(100000);
  for (int i = 0; i < 100000; ++i) tokens[static_cast<size_t>(i)] = i;
  corpus.Add(tokens);
  EXPECT_LE(corpus.automaton().bytes(), bytes);
  EXPECT_GE(Walk(corpus.automaton(), {99998, 99999}), 0);
}

}  // namespace
}  // namespace lockstep::spec
