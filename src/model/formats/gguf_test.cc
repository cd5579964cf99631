#include "model/formats/gguf.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>

#include "model/formats/weight_source.h"

namespace lockstep::model {
namespace {

const std::string kFolder = std::string(LS_SOURCE_DIR) + "/tests/data/gguf/";

std::unique_ptr<GgufFile> Open(const std::string& name, GgufMode mode = GgufMode::kLoad) {
  auto file = GgufFile::Open(kFolder + name, mode);
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? std::move(file).value() : nullptr;
}

TEST(Gguf, ReadsEveryValueType) {
  auto f = Open("all_value_types_ok.gguf");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->GetUint("k0").value(), 255u);
  EXPECT_EQ(f->GetUint("k2").value(), 65535u);
  EXPECT_EQ(f->GetUint("k4").value(), 4294967295u);
  EXPECT_EQ(f->GetUint("k10").value(), ~0ull);
  EXPECT_EQ(f->GetFloat("k6").value(), 1.5);
  EXPECT_EQ(f->GetFloat("k12").value(), -2.5);
  EXPECT_TRUE(f->GetBool("k7").value());
  EXPECT_EQ(f->GetString("k8").value(), "s");
  for (const char* negative : {"k1", "k3", "k5", "k11"}) {
    EXPECT_NE(f->GetUint(negative).status().message().find("-1 is negative"), std::string::npos);
  }
  for (const char* key : {"a1", "a3", "a5", "a11"}) EXPECT_EQ(f->GetInts(key).value(), std::vector<int32_t>{-1});
  EXPECT_EQ(f->GetInts("a0").value(), std::vector<int32_t>{255});
  EXPECT_EQ(f->GetInts("a2").value(), std::vector<int32_t>{65535});
  EXPECT_EQ(f->GetInts("a4").status().code(), StatusCode::kCorruptFile);  // beyond int32
  EXPECT_EQ(f->GetInts("a10").status().code(), StatusCode::kCorruptFile);
  EXPECT_EQ(f->GetFloats("a6").value(), std::vector<float>{1.5f});
  EXPECT_EQ(f->GetStrings("a8").value(), std::vector<std::string_view>{"s"});
}

TEST(Gguf, AWrongTypeNamesTheKeyAndBothTypes) {
  auto f = Open("all_value_types_ok.gguf");
  ASSERT_TRUE(f);
  EXPECT_NE(f->GetUint("k8").status().message().find("key k8: is string, an integer expected"), std::string::npos);
  EXPECT_NE(f->GetUint("k7").status().message().find("key k7: is bool, an integer"), std::string::npos);
  EXPECT_NE(f->GetBool("k0").status().message().find("is u8, bool"), std::string::npos);
  EXPECT_NE(f->GetFloat("k10").status().message().find("is u64, f32 or f64"), std::string::npos);
  EXPECT_NE(f->GetString("a8").status().message().find("an array of string, a string"), std::string::npos);
  EXPECT_NE(f->GetStrings("a0").status().message().find("an array of u8"), std::string::npos);
  EXPECT_NE(f->GetFloats("a12").status().message().find("an array of f64"), std::string::npos);
  EXPECT_NE(f->GetInts("k5").status().message().find("is i32, an array"), std::string::npos);
  EXPECT_EQ(f->GetUint("absent").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(f->Has("absent"));
}

TEST(Gguf, NestedAndEmptyArraysAreHeldWithTheirCounts) {
  auto f = Open("array_nested_ok.gguf");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->NumElems("a"), 3u);
  EXPECT_TRUE(f->Has("b"));
  EXPECT_TRUE(f->GetInts("b").value().empty());
}

TEST(Gguf, ShapeIsOutermostFirstAndDataIsInPlace) {
  auto f = Open("model_f32_ok.gguf");
  ASSERT_TRUE(f);
  const GgufTensor* k = f->Find("blk.0.attn_k.weight");
  ASSERT_TRUE(k);
  EXPECT_EQ(k->shape, (std::vector<uint64_t>{4, 8}));  // [K * Dh, D]
  EXPECT_EQ(k->bytes, 4u * 8 * 4);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(k->data) % 32, 0u);
  EXPECT_EQ(f->Find("blk.0.attn_z.weight"), nullptr);
  float first = 0;
  std::memcpy(&first, k->data, 4);
  EXPECT_TRUE(std::isfinite(first) && std::fabs(first) < 2);
}

TEST(Gguf, ATensorWithADimensionOfZeroHasNoData) {
  auto f = Open("C4_zero_dim_ok.gguf");
  ASSERT_TRUE(f);
  ASSERT_EQ(f->tensors().size(), 1u);
  EXPECT_EQ(f->tensors()[0].bytes, 0u);
  EXPECT_EQ(f->tensors()[0].data, nullptr);
}

TEST(Gguf, InspectModeTakesTypesWithoutAKernel) {
  auto f = Open("tensor_no_kernel_q3_k.gguf", GgufMode::kInspect);
  ASSERT_TRUE(f);
  EXPECT_STREQ(f->tensors()[0].type->name, "Q3_K");
  EXPECT_EQ(f->tensors()[0].bytes, 110u);
  EXPECT_FALSE(f->tensors()[0].type->dtype.has_value());
}

TEST(Gguf, AMixOfSuperblocksAndBlocksIsRead) {
  auto f = Open("model_q4_k_m_ok.gguf");
  ASSERT_TRUE(f);
  const std::pair<const char*, std::pair<DType, size_t>> expected[] = {
      {"token_embd.weight", {DType::kQ6_K, 4 * 210}},
      {"blk.0.attn_q.weight", {DType::kQ4_K, 32 * 144}},
      {"blk.0.attn_v.weight", {DType::kQ6_K, 16 * 210}},
      {"blk.0.attn_output.weight", {DType::kQ5_0, 256 * 22}},  // rows of 32 hold no superblock
      {"blk.0.ffn_down.weight", {DType::kQ8_0, 256 * 34}},
  };
  for (const auto& [name, want] : expected) {
    const GgufTensor* t = f->Find(name);
    ASSERT_TRUE(t) << name;
    EXPECT_EQ(t->dtype, want.first) << name;
    EXPECT_EQ(t->bytes, want.second) << name;
  }
}

// Case C6: from any part the same weights as the unsplit file.
TEST(GgufSplitFile, EveryPartOpensTheWholeModel) {
  auto whole = OpenGgufWeights(kFolder + "split_unsplit_ok.gguf");
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  for (int part = 1; part <= 3; ++part) {
    auto split = OpenGgufWeights(kFolder + "split_ok-0000" + std::to_string(part) + "-of-00003.gguf");
    ASSERT_TRUE(split.ok()) << split.status().message();
    EXPECT_EQ((*split)->gguf()->num_parts(), 3u);
    EXPECT_EQ((*split)->gguf()->tensors().size(), (*whole)->gguf()->tensors().size());
    EXPECT_EQ((*split)->fingerprint(), (*whole)->fingerprint());
    for (const GgufTensor& t : (*whole)->gguf()->tensors()) {
      auto ref = (*split)->Get(t.name);
      ASSERT_TRUE(ref.ok()) << ref.status().message();
      ASSERT_EQ(ref->bytes, t.bytes);
      EXPECT_EQ(std::memcmp(ref->data, t.data, t.bytes), 0) << t.name;
    }
  }
}

TEST(GgufSplitFile, APartInMemoryIsRefused) {
  std::ifstream in(kFolder + "split_ok-00001-of-00003.gguf", std::ios::binary);
  std::string raw((std::istreambuf_iterator<char>(in)), {});
  auto bytes = std::span(reinterpret_cast<const uint8_t*>(raw.data()), raw.size());
  EXPECT_EQ(GgufFile::Parse(bytes, "part").status().code(), StatusCode::kUnsupported);
}

TEST(WeightSource, RowsAndColumns) {
  auto source = OpenGgufWeights(kFolder + "model_q4_1_ok.gguf");
  ASSERT_TRUE(source.ok()) << source.status().message();
  auto embedding = (*source)->Get("token_embd.weight");
  ASSERT_TRUE(embedding.ok());
  EXPECT_EQ(embedding->dtype, DType::kQ4_1);
  EXPECT_EQ(embedding->rows, 4u);
  EXPECT_EQ(embedding->cols, 32u);
  auto norm = (*source)->Get("output_norm.weight");
  ASSERT_TRUE(norm.ok());
  EXPECT_EQ(norm->rows, 1u);
  EXPECT_EQ(norm->cols, 32u);
  EXPECT_EQ((*source)->Get("output.weight").status().code(), StatusCode::kNotFound);
}

TEST(Gguf, AMissingFileAndAFolderAreNamed) {
  EXPECT_EQ(GgufFile::Open(kFolder + "absent.gguf").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(GgufFile::Open(kFolder).status().code(), StatusCode::kCorruptFile);
}

// Bounds checks must not make a large vocabulary slow to load: 128k tokens and 280k merges, as Llama 3 has.
TEST(Gguf, ALargeVocabularyLoadsFast) {
  std::string raw("GGUF");
  auto put = [&raw](auto x) { raw.append(reinterpret_cast<const char*>(&x), sizeof x); };
  auto text = [&](const std::string& s) {
    put(uint64_t{s.size()});
    raw += s;
  };
  put(uint32_t{3});
  put(uint64_t{0});
  put(uint64_t{2});
  for (auto [key, count] : {std::pair{"tokenizer.ggml.tokens", 128256}, std::pair{"tokenizer.ggml.merges", 280147}}) {
    text(key);
    put(uint32_t{9});
    put(uint32_t{8});
    put(static_cast<uint64_t>(count));
    for (int i = 0; i < count; ++i) text("token" + std::to_string(i));
  }
  auto start = std::chrono::steady_clock::now();
  auto f = GgufFile::Parse({reinterpret_cast<const uint8_t*>(raw.data()), raw.size()}, "vocab");
  ASSERT_TRUE(f.ok()) << f.status().message();
  auto tokens = (*f)->GetStrings("tokenizer.ggml.tokens");
  double secs = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(tokens->size(), 128256u);
  EXPECT_EQ(tokens->back(), "token128255");
  EXPECT_LT(secs, 0.25);  // about 1 ms in a release build; the rest is for sanitizers
}

}  // namespace
}  // namespace lockstep::model
