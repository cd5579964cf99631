// Every fast kernel against its definition in ref/, bit for bit, on every instruction set that this
// machine has.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "base/canonical_tree.h"
#include "kernels/pack.h"
#include "kernels/ref/elementary.h"
#include "kernels/ref/half.h"
#include "kernels/ref/kernels.h"
#include "kernels/test_util.h"

namespace lockstep::kernels {

namespace {

using testing::ExpectSameBits;

class Kernels : public testing::KernelsTest {};

INSTANTIATE_TEST_SUITE_P(Isa, Kernels, ::testing::ValuesIn(testing::Tables()),
                         [](const auto& info) { return std::string(info.param->name); });

// Rows of int8 activations with the strides that the step uses.
struct QuantBuffer {
  QuantBuffer(int rows, int k)
      : blocks((k + 31) / 32), q(rows * blocks * 32), scale(rows * blocks), scaled(rows * blocks), sum(rows * blocks) {}
  QuantRows View() {
    return {q.data(), scale.data(), sum.data(), scaled.data(), static_cast<int64_t>(blocks) * 32, blocks};
  }
  int blocks;
  std::vector<int8_t> q;
  std::vector<float> scale, scaled;
  std::vector<int32_t> sum;
};

std::vector<uint8_t> RandomTensor(DType t, int rows, int cols, std::mt19937& rng) {
  const DTypeInfo info = GetDTypeInfo(t);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows) * (cols / info.block_elems) * info.block_bytes);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
  // Scales and floats must be finite and moderate; quants may be any bytes, -128 included.
  std::uniform_real_distribution<float> dist(-0.05f, 0.05f);
  for (size_t i = 0; i < bytes.size(); i += info.block_bytes) {
    float v = dist(rng);
    uint16_t h = ref::F32ToF16(v), m = ref::F32ToF16(dist(rng));
    if (t == DType::kF32) std::memcpy(&bytes[i], &v, 4);
    if (t == DType::kBF16) h = static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16);
    if (t != DType::kF32) std::memcpy(&bytes[i], &h, 2);
    if (t == DType::kQ4_1) std::memcpy(&bytes[i + 2], &m, 2);
  }
  return bytes;
}

// A tree over units of 32 elements as the matmul's plan, with one emitted sum.
LeafPlan PlanOf(int k) {
  CanonicalTree tree((k + 31) / 32);
  TreeProgram program = tree.Program();
  LeafPlan plan = {};
  plan.num_leaves = program.num_values();
  for (int i = 0; i < plan.num_leaves; ++i) {
    plan.k_end[i] = std::min(k, tree.leaves()[i].end * 32);
    plan.merges_after[i] = program.merges_after[i];
    plan.emit[i] = i + 1 == plan.num_leaves ? 0 : -1;
  }
  return plan;
}

float RefDot(DType t, const uint8_t* row, const LeafPlan& plan, const std::vector<float>& x) {
  ref::QuantisedRow xq = ref::Quantise(x);
  std::vector<float> stack;
  for (int leaf = 0; leaf < plan.num_leaves; ++leaf) {
    int begin = leaf == 0 ? 0 : plan.k_end[leaf - 1];
    stack.push_back(ref::DotLeaf(t, row, begin, plan.k_end[leaf], x, xq));
    for (int m = 0; m < plan.merges_after[leaf]; ++m) {
      float upper = stack.back();
      stack.pop_back();
      stack.back() += upper;
    }
  }
  return stack.back();
}

TEST_P(Kernels, MatmulEqualsTheDefinitionForEveryTypeAndRowCount) {
  for (DType t : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    for (int cols : {32, 288, 576}) {
      const int outputs = 83, max_rows = 41;
      std::vector<uint8_t> tensor = RandomTensor(t, outputs, cols, rng);
      std::vector<uint8_t> storage(PackedBytes(t, outputs, cols) + 64);
      auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(storage.data()) + 63) & ~63ull);
      PackRequest request{t, tensor.data(), cols, outputs, nullptr, 0, 0, cols};
      Pack(request, aligned, 0, 2);
      PackedMatrix packed = Pack(request, aligned, 2, (outputs + 15) / 16);
      LeafPlan plan = PlanOf(cols);
      std::vector<float> x = Floats(static_cast<size_t>(max_rows) * cols);
      x[5] = 1e-35f;
      for (int i = 0; i < 32; ++i) x[cols + i] = 0;  // a block of zeros in row 1
      const size_t row_bytes = tensor.size() / outputs;
      std::vector<float> expected(static_cast<size_t>(max_rows) * outputs);
      for (int r = 0; r < max_rows; ++r) {
        std::vector<float> row(x.begin() + r * cols, x.begin() + (r + 1) * cols);
        for (int o = 0; o < outputs; ++o) {
          expected[r * outputs + o] = RefDot(t, &tensor[o * row_bytes], plan, row);
        }
      }
      for (int rows = 0; rows <= max_rows; ++rows) {  // none: a chunk of a prompt whose logits nobody reads
        // Rows in reverse order: a row's result may not depend on where it stands or on its
        // neighbours.
        QuantBuffer quant(max_rows, cols);
        std::vector<float> reversed;
        for (int r = 0; r < rows; ++r) {
          const float* source = &x[(rows - 1 - r) * cols];
          reversed.insert(reversed.end(), source, source + cols);
          k.quantise_row(source, cols, quant.View(), r);
        }
        std::vector<float> out(static_cast<size_t>(max_rows) * 96, -1.0f);
        QuantRows view = quant.View();
        MatmulArgs args = {
            &packed, 0, packed.num_groups, &view, reversed.data(), cols, rows, &plan, {out.data(), nullptr, nullptr},
            96};
        k.matmul(args);
        for (int r = 0; r < rows; ++r) {
          std::vector<float> got(&out[r * 96], &out[r * 96] + outputs);
          std::vector<float> want(&expected[(rows - 1 - r) * outputs], &expected[(rows - 1 - r) * outputs] + outputs);
          ExpectSameBits(got, want, std::string(DTypeName(t)) + " rows " + std::to_string(rows));
          if (HasFatalFailure()) return;
        }
        std::vector<float> behind(out.begin() + rows * 96, out.end());
        ExpectSameBits(behind, std::vector<float>(behind.size(), -1.0f), "rows behind " + std::to_string(rows));
      }
    }
  }
}

TEST_P(Kernels, QuantiseRowEqualsTheDefinition) {
  for (int n : {32, 40, 576}) {
    std::vector<float> x = Floats(n, 3.0f);
    x[1] = 3.0f;
    x[2] = 1.5f;  // halves round to even
    std::vector<float> padded = x;
    padded.resize((n + 31) / 32 * 32, 0.0f);
    ref::QuantisedRow want = ref::Quantise(x);
    QuantBuffer got(2, n);
    k.quantise_row(padded.data(), n, got.View(), 1);
    for (int i = 0; i < got.blocks * 32; ++i) ASSERT_EQ(got.q[got.blocks * 32 + i], want.q[i]) << i;
    for (int b = 0; b < got.blocks; ++b) {
      EXPECT_EQ(got.scale[got.blocks + b], want.scale[b]);
      EXPECT_EQ(got.sum[got.blocks + b], want.sum[b]);
    }
  }
}

TEST_P(Kernels, ANonFiniteActivationPoisonsItsBlockOnly) {
  for (float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    std::vector<float> x = Floats(64);
    x[40] = bad;
    QuantBuffer got(1, 64);
    k.quantise_row(x.data(), 64, got.View(), 0);
    EXPECT_TRUE(std::isfinite(got.scale[0]));
    EXPECT_TRUE(std::isnan(got.scale[1]));
    EXPECT_EQ(got.sum[1], 0);
  }
}

TEST_P(Kernels, AddNormSumsPartialsInTreeOrderThenNorms) {
  const int d = 144;
  std::vector<float> x = Floats(d), weight = Floats(d);
  std::vector<std::vector<float>> partials;
  for (int i = 0; i < 5; ++i) partials.push_back(Floats(d));
  TreeProgram program = CanonicalTree(5).Program();
  std::vector<const float*> pointers;
  for (auto& p : partials) pointers.push_back(p.data());
  std::vector<float> summed = x, got_x = x, got(d);
  for (int i = 0; i < d; ++i) {
    float total = (((partials[0][i] + partials[1][i]) + partials[2][i]) + (partials[3][i] + partials[4][i]));
    summed[i] += total;
  }
  EXPECT_TRUE(
      k.add_norm({got_x.data(), pointers.data(), program.merges_after.data(), 5, weight.data(), 1e-5f, d, got.data()}));
  ExpectSameBits(got_x, summed, "residual");
  ExpectSameBits(got, ref::RmsNorm(summed, weight, 1e-5f), "norm");
  got_x[3] = HUGE_VALF;
  EXPECT_FALSE(k.add_norm({got_x.data(), nullptr, nullptr, 0, weight.data(), 1e-5f, d, got.data()}));
}

TEST_P(Kernels, RopeAndSiluEqualTheDefinition) {
  for (int dh : {16, 64, 80}) {
    std::vector<float> heads = Floats(3 * dh), cos = Floats(dh / 2, 1.0f), sin = Floats(dh / 2, 1.0f);
    std::vector<float> want = heads;
    for (int h = 0; h < 3; ++h) ref::Rope(&want[h * dh], dh, cos.data(), sin.data());
    k.rope(heads.data(), 3, dh, cos.data(), sin.data());
    ExpectSameBits(heads, want, "rope");
  }
  std::vector<float> gate = Floats(320, 100.0f), up = Floats(320), got(320), want(320);
  gate[0] = 0.0f;
  gate[1] = -1000.0f;
  gate[2] = 1000.0f;
  k.silu_mul(gate.data(), up.data(), got.data(), 320);
  for (int i = 0; i < 320; ++i) want[i] = ref::SiluMul(gate[i], up[i]);
  ExpectSameBits(got, want, "silu");
}

TEST_P(Kernels, ExpAndLogEqualTheDefinition) {
  std::vector<float> x, got;
  for (float v = -90.0f; v < 89.0f; v += 0.0137f) x.push_back(v);
  x.insert(x.end(), {0.0f, -0.0f, -HUGE_VALF, HUGE_VALF, -87.0f, 88.0f, 1e-30f});
  got.resize(x.size());
  k.exp(x.data(), got.data(), static_cast<int>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(got[i], ref::Exp(x[i])) << x[i];
  x.clear();
  for (float v = 0x1p-126f; v < 1e38f; v *= 1.0007f) x.push_back(v);
  got.resize(x.size());
  k.log(x.data(), got.data(), static_cast<int>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(got[i], ref::Log(x[i])) << x[i];
}

TEST(Half, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    float f = ref::F16ToF32(static_cast<uint16_t>(h));
    if (std::isnan(f)) continue;
    ASSERT_EQ(ref::F32ToF16(f), h);
  }
}

TEST_P(Kernels, ArgmaxPrefersTheSmallerIdAndSeesEveryNonFiniteValue) {
  for (int n : {1, 7, 16, 1000, 1024, 1040, 49152}) {
    std::vector<float> x = Floats(n, 1.0f);
    int first = n / 3, second = n - 1;
    x[first] = x[second] = 5.0f;
    ArgmaxResult best = k.argmax(x.data(), n);
    EXPECT_EQ(best.index, first) << n;
    EXPECT_EQ(best.value, 5.0f);
    EXPECT_TRUE(best.finite);
    for (float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> y = x;
      y[n / 2] = bad;
      EXPECT_FALSE(k.argmax(y.data(), n).finite) << n;
    }
  }
  std::vector<float> zeros = {-1.0f, -0.0f, 0.0f};
  zeros.resize(32, -2.0f);
  EXPECT_EQ(k.argmax(zeros.data(), 32).index, 1);
}

TEST(Pack, DequantRowReadsEveryType) {
  std::mt19937 rng(3);
  for (DType t : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    std::vector<uint8_t> row = RandomTensor(t, 1, 64, rng);
    std::vector<float> got(64);
    DequantRow(t, row.data(), 64, got.data());
    for (int i = 0; i < 64; ++i) {
      // A dot product with a unit vector of large scale reads the element back to int8 precision.
      std::vector<float> unit(64, 0.0f);
      unit[i] = 127.0f;
      float dot = ref::DotLeaf(t, row.data(), 0, 64, unit, ref::Quantise(unit));
      EXPECT_NEAR(dot / 127.0f, got[i], 1e-5f) << DTypeName(t) << " " << i;
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
