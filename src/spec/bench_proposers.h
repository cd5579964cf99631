// Drafters for `bench` and tests, whose acceptance is known beforehand: oracle, wrong and random.
//
// Units:   tokens
// Threads: one caller an object
#pragma once

#include "spec/proposer.h"

namespace lockstep::spec {

// A drafter that is told the whole text beforehand: prompt and all tokens that will come.
class KnowingProposer : public Proposer {
 public:
  explicit KnowingProposer(int vocab) : vocab_(vocab) {}
  void SetTruth(std::span<const int32_t> text) { truth_.assign(text.begin(), text.end()); }

  void Reset(std::span<const int32_t>) override {}
  void Observe(std::span<const int32_t>) override {}

 protected:
  int vocab_;
  std::vector<int32_t> truth_;
};

// Always right, as far as it knows the text. A chain is the true continuation. A tree spends half its nodes on it and
// the rest on wrong siblings, each placed before the right node, so that every accepted path must be compacted.
class OracleProposer : public KnowingProposer {
 public:
  using KnowingProposer::KnowingProposer;
  const char* name() const override { return "oracle"; }
  void Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) override;
};

// Never right, and sure of itself: the true token + 1, + 2 .. modulo the vocabulary. Fills its budget as long as it knows
// what to avoid.
class WrongProposer : public KnowingProposer {
 public:
  using KnowingProposer::KnowingProposer;
  const char* name() const override { return "wrong"; }
  void Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) override;
};

// Uniform tokens, and for a tree uniform parents: a function of (seed, position), the same on every rank.
class RandomProposer : public Proposer {
 public:
  RandomProposer(int vocab, uint64_t seed) : vocab_(vocab), seed_(seed) {}

  const char* name() const override { return "random"; }
  void Reset(std::span<const int32_t>) override {}
  void Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) override;
  void Observe(std::span<const int32_t>) override {}

 private:
  int vocab_;
  uint64_t seed_;
};

}  // namespace lockstep::spec
