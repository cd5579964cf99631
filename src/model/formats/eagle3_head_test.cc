// Heads of every layout load, with the values that their files hold. Folders with faults: eagle3_corpus_test.cc.
#include "model/formats/eagle3_head.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/pack.h"
#include "model/formats/eagle3_config.h"
#include "model/formats/eagle3_test_util.h"
#include "model/formats/quantise.h"

namespace lockstep::model {
namespace {

using testing::FakeTarget;
using testing::FileTensor;
using testing::HeadFolder;
using testing::HeadShape;
using testing::Json;

constexpr HeadOptions kAsInFile{.weight_dtype = std::nullopt};

std::unique_ptr<WeightSource> Open(HeadFolder& folder, const WeightSource& target, const HeadOptions& options = kAsInFile,
                                   int num_files = 1, int pad = 0) {
  auto head = OpenEagle3Head(folder.Write(num_files, pad), target, options);
  EXPECT_TRUE(head.ok()) << head.status().message();
  return head.ok() ? std::move(head).value() : nullptr;
}

std::vector<float> Values(const WeightSource& source, const std::string& name) {
  auto t = source.Get(name);
  EXPECT_TRUE(t.ok()) << t.status().message();
  if (!t.ok()) return {};
  std::vector<float> out(t->rows * t->cols);
  kernels::DequantRow(t->dtype, t->data, static_cast<int64_t>(out.size()), out.data());
  return out;
}

void ExpectTensor(const WeightSource& head, const std::string& here, const std::string& in_file,
                  std::vector<uint64_t> shape) {
  SCOPED_TRACE(here);
  auto t = head.Get(here);
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ(t->name, here);
  EXPECT_EQ(t->rows, shape.size() == 2 ? shape[0] : 1);
  EXPECT_EQ(t->cols, shape.back());
  const std::vector<float> values = Values(head, here);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], testing::ValueOf(in_file, i)) << i;
}

// Every tensor of the original layout, by the names that the values were made for.
void ExpectAll(const WeightSource& head, const HeadShape& s) {
  const uint64_t h = s.hidden, q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  ExpectTensor(head, "fc.weight", "fc.weight", {h, 3 * s.target_hidden});
  ExpectTensor(head, "blk.0.embd_norm.weight", "midlayer.input_layernorm.weight", {h});
  ExpectTensor(head, "blk.0.hidden_norm.weight", "midlayer.hidden_norm.weight", {h});
  ExpectTensor(head, "blk.0.attn_q.weight", "midlayer.self_attn.q_proj.weight", {q, 2 * h});
  ExpectTensor(head, "blk.0.attn_k.weight", "midlayer.self_attn.k_proj.weight", {kv, 2 * h});
  ExpectTensor(head, "blk.0.attn_v.weight", "midlayer.self_attn.v_proj.weight", {kv, 2 * h});
  ExpectTensor(head, "blk.0.attn_output.weight", "midlayer.self_attn.o_proj.weight", {h, q});
  ExpectTensor(head, "blk.0.ffn_norm.weight", "midlayer.post_attention_layernorm.weight", {h});
  ExpectTensor(head, "blk.0.ffn_gate.weight", "midlayer.mlp.gate_proj.weight", {s.ffn, h});
  ExpectTensor(head, "blk.0.ffn_up.weight", "midlayer.mlp.up_proj.weight", {s.ffn, h});
  ExpectTensor(head, "blk.0.ffn_down.weight", "midlayer.mlp.down_proj.weight", {h, s.ffn});
  ExpectTensor(head, "output_norm.weight", "norm.weight", {h});
}

TEST(Eagle3Head, OriginalLayout) {
  FakeTarget target;
  HeadFolder folder;
  auto head = Open(folder, target);
  ASSERT_TRUE(head);
  ExpectAll(*head, folder.shape);
  ExpectTensor(*head, "output.weight", "lm_head.weight", {32, 64});
  EXPECT_EQ(Values(*head, "token_embd.weight"), Values(target, "token_embd.weight"));
  const ModelConfig& c = head->config();
  EXPECT_EQ(c.arch, "eagle3");
  EXPECT_EQ(c.num_layers, 1u);
  EXPECT_EQ(c.hidden, 64u);
  EXPECT_EQ(c.ffn, 96u);
  EXPECT_EQ(c.num_heads, 4u);
  EXPECT_EQ(c.num_kv_heads, 2u);
  EXPECT_EQ(c.head_dim, 16u);
  EXPECT_EQ(c.vocab, 32u);
  EXPECT_EQ(c.context_length, 2048u);
  EXPECT_EQ(c.rms_norm_eps, 1e-5f);
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_EQ(c.rope_scaling, RopeScaling::kNone);
  EXPECT_FALSE(c.rope_interleaved || c.tied_embeddings || c.qkv_bias || c.qk_norm);
  EXPECT_EQ(c.eagle3.target_hidden, 64u);
  EXPECT_EQ(c.eagle3.tap_layers, (std::vector<int>{1, 5, 8}));
  EXPECT_FALSE(c.eagle3.fc_norm || c.eagle3.norm_before_fc || c.eagle3.norm_output || c.eagle3.own_embedding);
  ASSERT_EQ(c.eagle3.draft_to_target.size(), 32u);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(c.eagle3.draft_to_target[static_cast<size_t>(i)], 3 * i + 1);
  EXPECT_EQ(head->fingerprint().size(), 16u);
}

}  // namespace
}  // namespace lockstep::model
