// Every fast kernel against its definition in ref/, bit for bit, on every instruction set that this
// machine has.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/canonical_tree.h"
#include "kernels/pack.h"
#include "kernels/ref/elementary.h"
#include "kernels/ref/half.h"
#include "kernels/ref/kernels.h"
#include "kernels/test_util.h"

namespace lockstep::kernels {
namespace {

INSTANTIATE_TEST_SUITE_P(Isa, Kernels, testing::ValuesIn(Tables()),
                         [](const auto& info) { return std::string(info.param->name); });

// Rows of int8 activations with the strides that the step uses.
struct QuantBuffer {
  QuantBuffer(int rows, int k)
      : blocks((k + 31) / 32),
        q(rows * blocks * 32),
        scale(rows * blocks),
        scaled(rows * blocks),
        sum(rows * blocks),
        half(rows * blocks) {}
  QuantRows View() {
    return {q.data(), scale.data(), sum.data(), scaled.data(), half.data(), static_cast<int64_t>(blocks) * 32, blocks};
  }
  int blocks;
  std::vector<int8_t> q;
  std::vector<float> scale, scaled;
  std::vector<int32_t> sum, half;
};

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

// The plan's leaves of a file row, from element k_begin on; x are the activations from there on.
float RefDot(DType t, const uint8_t* row, int k_begin, const LeafPlan& plan, std::vector<float> x) {
  x.insert(x.begin(), static_cast<size_t>(k_begin), 0.0f);
  ref::QuantisedRow xq = ref::Quantise(x);
  std::vector<float> stack;
  for (int leaf = 0; leaf < plan.num_leaves; ++leaf) {
    int begin = leaf == 0 ? 0 : plan.k_end[leaf - 1];
    stack.push_back(ref::DotLeaf(t, row, k_begin + begin, k_begin + plan.k_end[leaf], x, xq));
    for (int m = 0; m < plan.merges_after[leaf]; ++m) {
      float upper = stack.back();
      stack.pop_back();
      stack.back() += upper;
    }
  }
  return stack.back();
}

// Columns of the file, and the slice of them that a rank takes.
struct Slice {
  int cols, k_begin, k_count;
};

TEST_P(Kernels, MatmulEqualsTheDefinitionForEveryTypeAndRowCount) {
  for (DType t : kAllTypes) {
    std::vector<Slice> slices = {{32, 0, 32}, {288, 0, 288}, {576, 0, 576}, {576, 96, 352}};
    // Slices that begin and end inside superblocks: one touches two of them with two blocks, one is a single last block.
    if (GetDTypeInfo(t).block_elems == 256) {
      slices = {{256, 0, 256}, {768, 0, 768}, {768, 224, 64}, {768, 160, 416}, {512, 480, 32}, {1024, 288, 736}};
    }
    for (const auto& [file_cols, k_begin, cols] : slices) {
      const int outputs = 83, max_rows = 41;
      std::vector<uint8_t> tensor = RandomTensor(t, outputs, file_cols, rng);
      std::vector<uint8_t> storage(PackedBytes(t, outputs, cols, k_begin) + 64);
      auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(storage.data()) + 63) & ~63ull);
      PackRequest request{t, tensor.data(), file_cols, outputs, nullptr, 0, k_begin, cols};
      Pack(request, aligned, 0, 2);
      PackedMatrix packed = Pack(request, aligned, 2, (outputs + 15) / 16);
      LeafPlan plan = PlanOf(cols);
      std::vector<float> x = Floats(static_cast<size_t>(max_rows) * cols);
      x[5] = 1e-35f;
      for (int i = 0; i < 32; ++i) x[cols + i] = 0;                           // a block of zeros in row 1
      for (int i = 0; i < cols; ++i) x[2 * cols + i] = i % 3 ? 2.0f : -2.0f;  // the largest quants in row 2
      const size_t row_bytes = tensor.size() / outputs;
      std::vector<float> expected(static_cast<size_t>(max_rows) * outputs);
      for (int r = 0; r < max_rows; ++r) {
        std::vector<float> row(x.begin() + r * cols, x.begin() + (r + 1) * cols);
        for (int o = 0; o < outputs; ++o) {
          expected[r * outputs + o] = RefDot(t, &tensor[o * row_bytes], k_begin, plan, row);
        }
      }
      std::vector<int> counts = {32, 33, 41};
      for (int rows = 0; rows <= 17; ++rows) counts.push_back(rows);
      for (int rows : counts) {  // none: a chunk of a prompt whose logits nobody reads
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
          ExpectSameBits(got, want,
                         std::string(DTypeName(t)) + " columns " + std::to_string(k_begin) + "+" +
                             std::to_string(cols) + " rows " + std::to_string(rows));
          if (HasFatalFailure()) return;
        }
        std::vector<float> behind(out.begin() + rows * 96, out.end());
        ExpectSameBits(behind, std::vector<float>(behind.size(), -1.0f), "rows behind " + std::to_string(rows));
      }
    }
  }
}

// The integers of a block at their largest: 16-bit sums of pairs must not saturate, and Q6_K's must stay exact floats.
TEST_P(Kernels, MatmulIsExactWhereEveryQuantIsAtItsLimit) {
  for (DType t : kAllTypes) {
    if (!IsQuantised(t)) continue;
    const DTypeInfo info = GetDTypeInfo(t);
    const int cols = 512, outputs = 16;
    for (uint8_t fill : {0x00, 0x7f, 0x80, 0xff}) {
      std::vector<uint8_t> tensor(static_cast<size_t>(outputs) * (cols / info.block_elems) * info.block_bytes, fill);
      for (size_t i = 0; i < tensor.size(); i += info.block_bytes) {
        const uint16_t scale = ref::F32ToF16(0.125f), min = ref::F32ToF16(-0.25f);
        std::memcpy(&tensor[i + (t == DType::kQ6_K ? 208 : 0)], &scale, 2);
        if (t == DType::kQ6_K && i / info.block_bytes % 2) std::memset(&tensor[i + 192], 0x80, 16);
        if (t == DType::kQ4_1 || t == DType::kQ5_1 || t == DType::kQ4_K || t == DType::kQ5_K) {
          std::memcpy(&tensor[i + 2], &min, 2);
        }
      }
      std::vector<uint8_t> storage(PackedBytes(t, outputs, cols) + 64);
      auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(storage.data()) + 63) & ~63ull);
      PackedMatrix packed = Pack({t, tensor.data(), cols, outputs, nullptr, 0, 0, cols}, aligned, 0, 1);
      LeafPlan plan = PlanOf(cols);
      for (float first : {127.0f, -127.0f}) {
        std::vector<float> x(cols, first);
        for (int i = 0; i < cols; i += 64) x[i + 40] = -first;
        QuantBuffer quant(1, cols);
        k.quantise_row(x.data(), cols, quant.View(), 0);
        std::vector<float> out(outputs), want;
        QuantRows view = quant.View();
        k.matmul({&packed, 0, 1, &view, x.data(), cols, 1, &plan, {out.data(), nullptr, nullptr}, outputs});
        for (int o = 0; o < outputs; ++o) want.push_back(RefDot(t, &tensor[o * tensor.size() / outputs], 0, plan, x));
        ExpectSameBits(out, want, DTypeName(t));
        if (HasFatalFailure()) return;
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
      EXPECT_EQ(got.half[got.blocks + b], want.half_sum[b]);
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
  for (int count : {0, 1, 2, 3, 5, 8}) {
    std::vector<float> x = Floats(d), weight = Floats(d);
    std::vector<std::vector<float>> partials;
    for (int i = 0; i < count; ++i) partials.push_back(Floats(d));
    const TreeProgram program = count > 0 ? CanonicalTree(count).Program() : TreeProgram{};
    std::vector<const float*> pointers;
    for (auto& p : partials) pointers.push_back(p.data());
    std::vector<float> summed = x, got_x = x, got(d);
    for (int i = 0; i < d; ++i) {
      std::vector<float> stack;
      for (int p = 0; p < count; ++p) {
        stack.push_back(partials[p][i]);
        for (int m = 0; m < program.merges_after[p]; ++m) {
          const float upper = stack.back();
          stack.pop_back();
          stack.back() += upper;
        }
      }
      if (count > 0) summed[i] += stack.back();
    }
    EXPECT_TRUE(k.add_norm(
        {got_x.data(), pointers.data(), program.merges_after.data(), count, weight.data(), 1e-5f, d, got.data()}));
    ExpectSameBits(got_x, summed, "residual");
    ExpectSameBits(got, ref::RmsNorm(summed, weight, 1e-5f), "norm");
    got_x[3] = HUGE_VALF;
    EXPECT_FALSE(k.add_norm({got_x.data(), nullptr, nullptr, 0, weight.data(), 1e-5f, d, got.data()}));
  }
}

TEST_P(Kernels, RopeSiluAndBiasEqualTheDefinition) {
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
  got = gate;
  k.add_bias(got.data(), up.data(), 320);
  for (int i = 0; i < 320; ++i) want[i] = ref::AddBias(gate[i], up[i]);
  ExpectSameBits(got, want, "bias");
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

}  // namespace
}  // namespace lockstep::kernels
