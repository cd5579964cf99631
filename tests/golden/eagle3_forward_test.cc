// The head's forward on ranks and threads against the goldens (eagle3_case.h): within 1e-4 of the range of a float64
// reference, and bit-equal however it is cut.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <random>

#include "eagle3_case.h"
#include "model/formats/eagle3_head.h"
#include "step/step_runner.h"

namespace lockstep {
namespace {

using model::testing::Eagle3Case;

// A target of the case's width and depth. What it computes does not matter: the test writes the taps.
class SmallTarget : public model::WeightSource {
 public:
  explicit SmallTarget(const Eagle3Case& c) : vocab_(static_cast<uint64_t>(c.vocab)) {
    config_.arch = "llama";
    config_.num_layers = static_cast<uint32_t>(c.num_layers);
    config_.hidden = static_cast<uint32_t>(c.target_hidden);
    config_.ffn = 96;
    config_.num_heads = config_.num_kv_heads = 2;
    config_.head_dim = 32;
    config_.vocab = static_cast<uint32_t>(c.vocab);
    config_.context_length = 64;
    config_.rms_norm_eps = 1e-5f;
  }
  const model::ModelConfig& config() const override { return config_; }
  std::string fingerprint() const override { return "test"; }
  Result<model::TensorRef> Get(std::string_view name) const override {
    auto ends = [name](const char* text) { return name.ends_with(text); };
    uint64_t rows = config_.hidden, cols = config_.hidden;
    if (ends("norm.weight")) rows = 1;
    if (name == "token_embd.weight" || name == "output.weight") rows = vocab_;
    if (ends("attn_q.weight") || ends("attn_k.weight") || ends("attn_v.weight")) rows = 64;
    if (ends("attn_output.weight")) cols = 64;
    if (ends("ffn_gate.weight") || ends("ffn_up.weight")) rows = config_.ffn;
    if (ends("ffn_down.weight")) cols = config_.ffn;
    const std::scoped_lock lock(mutex_);  // ranks load at once
    std::vector<float>& v = values_[std::string(name)];
    if (v.empty()) {
      std::mt19937 rng(static_cast<uint32_t>(values_.size()));
      for (uint64_t i = 0; i < rows * cols; ++i) v.push_back(static_cast<float>(rng() % 2001) / 1e4f - 0.1f);
    }
    return model::TensorRef{
        std::string(name),       DType::kF32, rows, cols, reinterpret_cast<const uint8_t*>(v.data()),
        v.size() * sizeof(float)};
  }
  void Fetch(std::span<const uint8_t>) const override {}
  void Drop(std::span<const uint8_t>) const override {}

 private:
  model::ModelConfig config_;
  uint64_t vocab_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<float>> values_;
};

class ForwardRun {
 public:
  ForwardRun(const Eagle3Case& c, int tp, int threads) : case_(c) {
    auto head = model::OpenEagle3Head(c.folder, *c.target, {.weight_dtype = std::nullopt});
    EXPECT_TRUE(head.ok()) << head.status().message();
    step::StepOptions o;
    o.tp = tp;
    o.threads = threads;
    o.context = 64;
    o.oversubscribed = true;
    o.kv_dtype = DType::kF32;
    o.drafts.push_back({std::move(head).value(), 64, 64, DType::kF32});
    auto runner = step::StepRunner::Create(std::make_shared<SmallTarget>(c), o);
    EXPECT_TRUE(runner.ok()) << runner.status().message();
    runner_ = std::move(runner).value();
    const int64_t row = int64_t{3} * c.target_hidden;
    for (int rank = 0; rank < tp; ++rank) {
      for (int i = 0; i < c.num_extend; ++i) std::copy_n(&c.taps[i * row], row, runner_->taps(rank, 0, i));
    }
  }

  std::vector<float> Logits() {
    RunRows(0, case_.num_extend, true);
    int row = case_.num_extend;
    for (; row < case_.num_extend + case_.num_chain; ++row) RunRows(row, row + 1, false);
    while (row < case_.num_rows()) {  // rows of a level follow each other
      int end = row + 1;
      while (end < case_.num_rows() && case_.parents[end] < row) ++end;
      RunRows(row, end, false);
      row = end;
    }
    return logits_;
  }

 private:
  void RunRows(int begin, int end, bool fused) {
    step::StepInput& in = runner_->draft_input(0);
    const int num = end - begin, num_path = fused ? 0 : begin - case_.num_extend;
    in.num_rows = in.num_logits_rows = num;
    in.num_path_rows = num_path;
    in.num_sequences = 1;
    in.fused = fused;
    in.hidden_out = begin;
    in.sequences[0] = {};
    in.sequences[0].kv = {fused ? 0 : case_.num_extend, 0, 0};
    in.sequences[0].num_rows = in.sequences[0].num_logits_rows = num;
    // Rows of earlier steps, but those of the extend, stand behind the step's own.
    auto index = [&](int row) {
      if (row < case_.num_extend && !fused) return -1;  // the extend's rows are committed
      return row >= begin ? row - begin : num + row - case_.num_extend;
    };
    auto fill = [&](int row) {
      const int parent = case_.parents[row];
      in.rows[index(row)] = {
          case_.tokens[row],   case_.positions[row] - case_.positions[0], 0, parent < 0 ? -1 : index(parent), row, 1,
          fused ? row : parent};
    };
    for (int row = begin; row < end; ++row) {
      fill(row);
      in.logits_rows[row - begin] = row - begin;
    }
    for (int i = 0; i < num_path; ++i) fill(case_.num_extend + i);
    ASSERT_TRUE(runner_->RunDraft(0).ok());
    for (int i = 0; i < num; ++i) {
      const std::span<const float> row = runner_->draft_logits(0, i);
      logits_.insert(logits_.end(), row.begin(), row.end());
    }
  }

  const Eagle3Case& case_;
  std::unique_ptr<step::StepRunner> runner_;
  std::vector<float> logits_;
};

TEST(Eagle3Forward, EqualsThePublishedOneInEveryLayout) {
  const std::vector<Eagle3Case> cases = model::testing::Eagle3Cases();
  ASSERT_GE(cases.size(), 8u);
  for (const Eagle3Case& c : cases) {
    const std::vector<float> logits = ForwardRun(c, 1, 1).Logits();
    ASSERT_EQ(logits.size(), c.logits.size()) << c.name;
    const float range = Eagle3Case::RangeOf(c.logits);
    float worst = 0;
    for (size_t i = 0; i < logits.size(); ++i) worst = std::max(worst, std::fabs(logits[i] - c.logits[i]));
    EXPECT_LT(worst, 1e-4f * range) << c.name;
    for (auto [tp, threads] : {std::pair{1, 3}, {2, 1}, {2, 2}}) {
      EXPECT_EQ(ForwardRun(c, tp, threads).Logits(), logits) << c.name << ", tp " << tp << " x " << threads;
    }
  }
}

}  // namespace
}  // namespace lockstep
