// Drafters for `bench` and tests, whose acceptance is known beforehand: oracle, wrong and random.
//
// Units:   tokens
// Threads: one caller an object
#pragma once

#include "spec/proposer.h"

namespace lockstep::spec {

// Always right, as far as it knows the text. A chain is the true continuation. A tree spends half its nodes on it and
// the rest on wrong siblings, each placed before the right node, so that every accepted path must be compacted.
class OracleProposer : public Proposer {
 public:
  explicit OracleProposer(int vocab) : vocab_(vocab) {}
  // The whole text: prompt and all tokens that will come.
  void SetTruth(std::span<const int32_t> text) { truth_.assign(text.begin(), text.end()); }

  const char* name() const override { return "oracle"; }
  void Reset(std::span<const int32_t>) override {}
  void Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) override;
  void Observe(std::span<const int32_t>) override {}

 private:
  int vocab_;
  std::vector<int32_t> truth_;
};

// Never right: the true token + 1, + 2 .. modulo the vocabulary. Fills its budget as long as it knows what to avoid.
class WrongProposer : public Proposer {
 public:
  explicit WrongProposer(int vocab) : vocab_(vocab) {}
  void SetTruth(std::span<const int32_t> text) { truth_.assign(text.begin(), text.end()); }

  const char* name() const override { return "wrong"; }
  void Reset(std::span<const int32_t>) override {}
  void Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) override;
  void Observe(std::span<const int32_t>) override {}

 private:
  int vocab_;
  std::vector<int32_t> truth_;
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
