// The goldens of the EAGLE-3 pass and the reader of heads hold each other: a plain forward over the tensors that
// OpenEagle3Head hands out must give what PyTorch gave, and a forward with any fault that engines have had must not.
#include "model/formats/eagle3_head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "golden/eagle3_case.h"
#include "kernels/pack.h"

namespace lockstep::model {
namespace {

using testing::Eagle3Case;
using testing::Eagle3Cases;
using Row = std::vector<double>;

enum class Fault {
  kNone,
  kHiddenFirst,       // the halves of q, k and v's input swapped
  kNormedResidual,    // the residual is the normed hidden
  kNoRope,            //
  kAdjacentPairs,     // rope over neighbours
  kTapsReversed,      // high, middle, low
  kOtherFeedback,     // before the last norm instead of after, or the other way round
  kSeesBrothers,      // all earlier rows instead of the ancestors
  kNoTapNorms,        // fc_norm and input_norm left out
  kTargetsEmbedding,  // though the head has one
};

class PlainForward {
 public:
  PlainForward(const WeightSource& head, const Eagle3Case& c, Fault fault)
      : head_(head), config_(head.config()), case_(c), fault_(fault) {}

  // The largest difference over the range, of hidden and logits.
  double Worst() {
    double hidden = 0, logits = 0;
    for (int row = 0; row < case_.num_rows(); ++row) {
      Run(row);
      for (size_t i = 0; i < hidden_[row].size(); ++i) {
        hidden = std::max(hidden, std::abs(hidden_[row][i] - double{case_.Hidden(row)[i]}));
      }
      for (size_t i = 0; i < logits_.size(); ++i) {
        logits = std::max(logits, std::abs(logits_[i] - double{case_.Logits(row)[i]}));
      }
    }
    return std::max(hidden / Eagle3Case::RangeOf(case_.hidden_out), logits / Eagle3Case::RangeOf(case_.logits));
  }

 private:
  struct Matrix {
    uint64_t rows, cols;
    std::vector<float> values;
  };

  const Matrix& Get(const WeightSource& source, const std::string& name) {
    Matrix& m = cache_[(&source == &head_ ? "" : "target ") + name];
    if (!m.values.empty()) return m;
    auto t = source.Get(name);
    EXPECT_TRUE(t.ok()) << t.status().message();
    m = {t->rows, t->cols, std::vector<float>(t->rows * t->cols)};
    kernels::DequantRow(t->dtype, t->data, static_cast<int64_t>(m.values.size()), m.values.data());
    return m;
  }

  Row Linear(const std::string& name, const Row& x) {
    const Matrix& m = Get(head_, name + ".weight");
    EXPECT_EQ(m.cols, x.size()) << name;
    Row y(m.rows);
    for (size_t r = 0; r < y.size(); ++r) {
      for (size_t k = 0; k < x.size(); ++k) y[r] += double{m.values[r * m.cols + k]} * x[k];
    }
    if (head_.Get(name + ".bias").ok()) {
      for (size_t r = 0; r < y.size(); ++r) y[r] += double{Get(head_, name + ".bias").values[r]};
    }
    return y;
  }

  Row Norm(const std::string& name, Row x) {
    const Matrix& m = Get(head_, name + ".weight");
    EXPECT_EQ(m.cols, x.size()) << name;
    double sum = 0;
    for (double v : x) sum += v * v;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + double{config_.rms_norm_eps});
    for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * double{m.values[i]};
    return x;
  }

  Row Fuse(int row) {
    const size_t ht = static_cast<size_t>(case_.target_hidden);
    const bool norms = fault_ != Fault::kNoTapNorms;
    Row x(3 * ht);
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t tap = fault_ == Fault::kTapsReversed ? 2 - i / ht : i / ht;
      x[i] = double{case_.taps[static_cast<size_t>(row) * 3 * ht + tap * ht + i % ht]};
    }
    if (config_.eagle3.norm_before_fc && norms) x = Norm("fc_input_norm", x);
    if (config_.eagle3.fc_norm && norms) {
      for (size_t tap = 0; tap < 3; ++tap) {
        auto begin = x.begin() + static_cast<ptrdiff_t>(tap * ht);
        const Row part = Norm("fc_norm." + std::to_string(tap), Row(begin, begin + static_cast<ptrdiff_t>(ht)));
        std::copy(part.begin(), part.end(), begin);
      }
    }
    return Linear("fc", x);
  }

  void Rotate(Row* x, int position) const {
    if (fault_ == Fault::kNoRope) return;
    const size_t half = config_.head_dim / 2;
    for (size_t head = 0; head < x->size() / (2 * half); ++head) {
      for (size_t i = 0; i < half; ++i) {
        double frequency = std::pow(config_.rope_theta, -static_cast<double>(i) / static_cast<double>(half));
        if (config_.rope_scaling == RopeScaling::kLinear) frequency /= config_.rope_factor;
        if (config_.rope_scaling == RopeScaling::kFreqFactors) frequency /= double{config_.rope_freq_factors[i]};
        const bool pairs = fault_ == Fault::kAdjacentPairs;
        double& a = (*x)[head * 2 * half + (pairs ? 2 * i : i)];
        double& b = (*x)[head * 2 * half + (pairs ? 2 * i + 1 : i + half)];
        const double angle = position * frequency, old = a;
        a = old * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + old * std::sin(angle);
      }
    }
  }

  // Over the row and those it sees.
  Row Attend(int row, const Row& q) const {
    const size_t dh = config_.head_dim, group = config_.num_heads / config_.num_kv_heads;
    std::vector<int> seen = case_.ancestors[static_cast<size_t>(row)];
    if (fault_ == Fault::kSeesBrothers) {
      seen.clear();
      for (int other = 0; other < row; ++other) seen.push_back(other);
    }
    seen.push_back(row);
    Row out(q.size());
    for (size_t h = 0; h < config_.num_heads; ++h) {
      Row weight(seen.size());
      double sum = 0;
      for (size_t s = 0; s < seen.size(); ++s) {
        double score = 0;
        for (size_t i = 0; i < dh; ++i) score += q[h * dh + i] * keys_.at(seen[s])[h / group * dh + i];
        sum += weight[s] = std::exp(score / std::sqrt(static_cast<double>(dh)));
      }
      for (size_t s = 0; s < seen.size(); ++s) {
        for (size_t i = 0; i < dh; ++i) out[h * dh + i] += weight[s] / sum * values_.at(seen[s])[h / group * dh + i];
      }
    }
    return out;
  }

  void Run(int row) {
    const size_t h = config_.hidden;
    const int position = case_.positions[static_cast<size_t>(row)];
    const Row g = row < case_.num_extend ? Fuse(row) : hidden_.at(case_.parents[static_cast<size_t>(row)]);
    const bool other = fault_ == Fault::kTargetsEmbedding && config_.hidden == case_.target->config().hidden;
    const Matrix& embedding = Get(other ? *case_.target : head_, "token_embd.weight");
    auto begin = embedding.values.begin() + static_cast<ptrdiff_t>(case_.tokens[static_cast<size_t>(row)] * h);
    Row x = Norm("blk.0.embd_norm", Row(begin, begin + static_cast<ptrdiff_t>(h)));
    Row normed = Norm("blk.0.hidden_norm", g);
    const Row residual = fault_ == Fault::kNormedResidual ? normed : g;
    if (fault_ == Fault::kHiddenFirst) std::swap(x, normed);
    x.insert(x.end(), normed.begin(), normed.end());
    Row q = Linear("blk.0.attn_q", x), k = Linear("blk.0.attn_k", x);
    Rotate(&q, position);
    Rotate(&k, position);
    keys_[row] = k;
    values_[row] = Linear("blk.0.attn_v", x);
    Row hidden = Linear("blk.0.attn_output", Attend(row, q));
    for (size_t i = 0; i < h; ++i) hidden[i] += residual[i];
    const Row m = Norm("blk.0.ffn_norm", hidden);
    Row gate = Linear("blk.0.ffn_gate", m);
    const Row up = Linear("blk.0.ffn_up", m);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    const Row down = Linear("blk.0.ffn_down", gate);
    for (size_t i = 0; i < h; ++i) hidden[i] += down[i];
    const Row last = Norm("output_norm", hidden);
    logits_ = Linear("output", last);
    hidden_[row] = config_.eagle3.norm_output != (fault_ == Fault::kOtherFeedback) ? last : hidden;
  }

  const WeightSource& head_;
  const ModelConfig& config_;
  const Eagle3Case& case_;
  Fault fault_;
  std::map<std::string, Matrix> cache_;
  std::map<int, Row> hidden_, keys_, values_;
  Row logits_;
};

double Worst(const Eagle3Case& c, Fault fault) {
  auto head = OpenEagle3Head(c.folder, *c.target, {.weight_dtype = std::nullopt});
  EXPECT_TRUE(head.ok()) << head.status().message();
  return head.ok() ? PlainForward(**head, c, fault).Worst() : 0;
}

TEST(Eagle3Golden, EqualPyTorch) {
  const std::vector<Eagle3Case> cases = Eagle3Cases();
  ASSERT_EQ(cases.size(), 10u);
  for (const Eagle3Case& c : cases) EXPECT_LT(Worst(c, Fault::kNone), 1e-6) << c.name;
}

// A hundred times the tolerance of a forward in f32, or nothing at all where the fault cannot show.
TEST(Eagle3Golden, EveryFaultShows) {
  for (const Eagle3Case& c : Eagle3Cases()) {
    auto head = OpenEagle3Head(c.folder, *c.target, {.weight_dtype = std::nullopt});
    ASSERT_TRUE(head.ok());
    const Eagle3Config& e = (*head)->config().eagle3;
    for (int f = static_cast<int>(Fault::kHiddenFirst); f <= static_cast<int>(Fault::kTargetsEmbedding); ++f) {
      const auto fault = static_cast<Fault>(f);
      if (fault == Fault::kNoTapNorms && !e.fc_norm && !e.norm_before_fc) continue;
      if (fault == Fault::kTargetsEmbedding && (!e.own_embedding || c.hidden != c.target_hidden)) continue;
      EXPECT_GT(Worst(c, fault), 0.01) << c.name << ", fault " << f;
    }
  }
}

// Q8_0 costs little, Q4 more, of weights that are noise; neither is another head.
TEST(Eagle3Golden, QuantisedHeadsStayNear) {
  for (const Eagle3Case& c : Eagle3Cases()) {
    for (auto [type, limit] :
         {std::pair(DType::kQ8_0, 0.02), std::pair(DType::kQ4_1, 0.5), std::pair(DType::kQ4_0, 0.5)}) {
      auto head = OpenEagle3Head(c.folder, *c.target, {.weight_dtype = type});
      ASSERT_TRUE(head.ok()) << head.status().message();
      const double worst = PlainForward(**head, c, Fault::kNone).Worst();
      EXPECT_LT(worst, limit) << c.name << " " << DTypeName(type);
      EXPECT_GT(worst, 1e-5) << c.name << " " << DTypeName(type);
    }
  }
}

}  // namespace
}  // namespace lockstep::model
