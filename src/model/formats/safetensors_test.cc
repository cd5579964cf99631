#include "model/formats/safetensors.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/formats/json_config.h"
#include "model/inspect.h"

namespace lockstep::model {
namespace {

const std::string kFolder = std::string(LS_SOURCE_DIR) + "/tests/data/safetensors/";

std::unique_ptr<Safetensors> Open(const std::string& name) {
  auto files = Safetensors::Open(kFolder + name);
  EXPECT_TRUE(files.ok()) << files.status().message();
  return files.ok() ? std::move(files).value() : nullptr;
}

template <typename T>
std::string Error(const Result<T>& result) {
  return result.ok() ? "" : result.status().message().substr(result.status().message().rfind('/') + 1);
}

TEST(Safetensors, ReadsAHeadsFolder) {
  auto head = Open("eagle3_ok");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->path(), kFolder + "eagle3_ok");
  EXPECT_EQ(head->files().size(), 1u);
  EXPECT_EQ(head->tensors().size(), 15u);
  const uint64_t shape[] = {8, 24};
  auto fc = head->GetFloats("fc.weight", shape);
  ASSERT_TRUE(fc.ok()) << fc.status().message();
  EXPECT_EQ((*fc)->type->dtype, DType::kBF16);
  EXPECT_EQ((*fc)->bytes, 2u * 8 * 24);
  EXPECT_EQ((*fc)->num_elems(), 8u * 24);
  EXPECT_EQ((*fc)->data[1], 3);  // the corpus writes 7 i + 3 j, modulo 61
  EXPECT_EQ(*head->GetInts("d2t", 4), (std::vector<int64_t>{0, 0, 1, 2}));
  EXPECT_EQ(*head->GetBools("t2d", 6), (std::vector<uint8_t>{1, 1, 0, 1, 0, 1}));
}

TEST(Safetensors, GettersNameFileTensorAndValue) {
  auto file = Open("values_ok.safetensors");
  ASSERT_TRUE(file);
  EXPECT_EQ(*file->GetInts("d2t", 3), (std::vector<int64_t>{-1, 2147483647, -2147483648ll}));
  EXPECT_EQ(*file->GetInts("ids", 2), (std::vector<int64_t>{-5, int64_t{1} << 62}));
  EXPECT_TRUE(file->GetBools("none", 0)->empty());
  EXPECT_EQ(Error(file->GetBools("t2d", 2)), "values_ok.safetensors: tensor t2d: element 1 is 2, 0 or 1 expected");
  EXPECT_EQ(Error(file->GetInts("ids", 3)), "values_ok.safetensors: tensor ids: shape [2], [3] expected");
  EXPECT_EQ(Error(file->GetInts("w", 2)), "values_ok.safetensors: tensor w: type F16, I64 or I32 expected");
  EXPECT_EQ(Error(file->GetInts("x\n", 2)), "values_ok.safetensors: tensor x\\x0a: missing");
  EXPECT_EQ(file->GetInts("x", 2).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(file->GetInts("w", 2).status().code(), StatusCode::kUnsupported);
  const uint64_t vector[] = {2};
  EXPECT_EQ(Error(file->GetFloats("w", vector)), "values_ok.safetensors: tensor w: shape [2, 1], [2] expected");
  EXPECT_EQ(Error(file->GetFloats("d2t", vector)),
            "values_ok.safetensors: tensor d2t: type I32, F32 or F16 or BF16 expected");
}

TEST(Safetensors, DataIsWhatTheHeaderSays) {
  auto all = Open("data_in_another_order_ok.safetensors");
  ASSERT_TRUE(all);
  ASSERT_EQ(all->tensors().size(), 2u);
  EXPECT_EQ(all->tensors()[0].name, "a");
  EXPECT_EQ(all->tensors()[1].data, all->tensors()[0].data + 4);
  auto zero = Open("zero_dims_ok.safetensors");
  ASSERT_TRUE(zero);
  EXPECT_EQ(zero->Find("a")->data, nullptr);
  EXPECT_EQ(zero->Find("c")->shape, (std::vector<uint64_t>{3, 0}));
  EXPECT_EQ(zero->Find("d"), nullptr);
  auto noted = Open("metadata_ok.safetensors");
  ASSERT_TRUE(noted);
  ASSERT_EQ(noted->metadata().size(), 2u);
  EXPECT_EQ(noted->metadata()[0], (std::pair<std::string, std::string>("format", "pt")));
}

TEST(Safetensors, HeadersHaveLimits) {
  auto parse = [](const std::string& header) {
    const uint64_t length = header.size();
    std::string raw(reinterpret_cast<const char*>(&length), sizeof length);
    raw += header;
    return Error(Safetensors::Parse({reinterpret_cast<const uint8_t*>(raw.data()), raw.size()}, "f.safetensors"));
  };
  std::string keys = "{\"__metadata__\":{\"\":\"\"";
  for (int i = 0; i < 1 << 16; ++i) keys += ",\"\":\"\"";
  EXPECT_EQ(parse(keys + "}}"), "f.safetensors: __metadata__: more than 65536 keys");
  std::string tensors = "{";
  for (int i = 0; i <= 1 << 20; ++i) tensors += "\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},";
  EXPECT_EQ(parse(tensors), "f.safetensors: more than 1048576 tensors");
}

TEST(Safetensors, AnIndexJoinsItsShards) {
  for (const char* path : {"folder_index_ok", "folder_index_ok/model.safetensors.index.json"}) {
    auto files = Open(path);
    ASSERT_TRUE(files);
    EXPECT_EQ(files->path(), kFolder + path);
    ASSERT_EQ(files->files().size(), 2u);
    EXPECT_EQ(files->tensors().size(), 3u);
    EXPECT_TRUE(files->FileOf(*files->Find("c")).ends_with("/model-00002-of-00002.safetensors"));
    EXPECT_TRUE(files->FileOf(*files->Find("a")).ends_with("/model-00001-of-00002.safetensors"));
  }
  EXPECT_EQ(Open("folder_index_unlisted_tensor_ok")->tensors().size(), 3u);
}

TEST(Safetensors, InspectListsThem) {
  auto text = InspectJson(kFolder + "eagle3_ok");
  ASSERT_TRUE(text.ok());
  auto out = nlohmann::json::parse(*text, nullptr, false);
  for (const char* key : {"path", "format", "arch", "config", "tensors", "tokenizer", "shards", "kv_bytes_per_token"}) {
    EXPECT_TRUE(out.contains(key)) << key;
  }
  EXPECT_EQ(out["format"], "safetensors");
  EXPECT_EQ(out["arch"], "LlamaForCausalLMEagle3");
  EXPECT_EQ(out["tensors"].size(), 15u);
  EXPECT_EQ(out["tensors"][0]["name"], "d2t");
  EXPECT_EQ(out["tensors"][0]["type"], "I64");
  EXPECT_EQ(out["tensors"][0]["shape"], nlohmann::json({4}));
  EXPECT_EQ(out["tensors"][0]["bytes"], 32);
  EXPECT_EQ(out["tensors"][0]["file"], "model.safetensors");
  EXPECT_NE(InspectText(kFolder + "eagle3_ok")->find("midlayer.mlp.down_proj.weight"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(*InspectJson(kFolder + "folder_index_ok"))["config"].is_null());
  auto alone = InspectJson(kFolder + "scalar_ok.safetensors");
  ASSERT_TRUE(alone.ok());
  EXPECT_TRUE(nlohmann::json::parse(*alone)["arch"].is_null());
}

TEST(Safetensors, InspectNamesAHeadsSizes) {
  auto config = nlohmann::json::parse(*InspectJson(kFolder + "eagle3_ok"))["config"];
  EXPECT_EQ(config["hidden"], 8);
  EXPECT_EQ(config["vocab"], 6);
  EXPECT_EQ(config["draft_vocab"], 4);
  EXPECT_EQ(config["tap_layers"], nlohmann::json({1, 14, 26}));
  EXPECT_EQ(config["layer_prefix"], "midlayer.");
  const std::string text = *InspectText(kFolder + "eagle3_ok");
  for (const char* part :
       {"EAGLE-3 head for hidden 8, vocabulary 6\n", "heads 2 / 1 of 4, draft vocabulary 4, context 2048\n",
        "taps behind layers 1, 14, 26; the target's embedding, names midlayer.\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  const std::string heads = std::string(LS_SOURCE_DIR) + "/tests/data/eagle3/";
  auto broken = nlohmann::json::parse(*InspectJson(heads + "tensor_wide_norm.safetensors"));
  EXPECT_TRUE(broken["config"].is_null());
  EXPECT_NE(std::string(broken["config_error"]).find("tensor norm.weight: shape [5], [4] expected"), std::string::npos);
}

JsonConfig Config(const std::string& name) {
  auto config = JsonConfig::Open(kFolder + name);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? std::move(config).value() : JsonConfig();
}

TEST(JsonConfig, ReadsAHeadsConfig) {
  const JsonConfig c = Config("eagle3_ok/config.json");
  EXPECT_EQ(*c.GetUint("hidden_size", 1, 100), 8u);
  EXPECT_EQ(*c.GetPositive("rms_norm_eps", 0.1), 1e-5);
  EXPECT_EQ(*c.GetPositive("rope_theta", 1e12), 10000.0);
  EXPECT_EQ(*c.GetBool("tie_word_embeddings"), false);
  EXPECT_EQ(*c.GetString("model_type"), "llama");
  EXPECT_EQ(*c.GetStrings("architectures"), std::vector<std::string>{"LlamaForCausalLMEagle3"});
  EXPECT_EQ(*c.GetUints("eagle_config/eagle_aux_hidden_state_layer_ids", 0, 29, 3), (std::vector<uint64_t>{1, 14, 26}));
  EXPECT_FALSE(c.Has("eagle_config/x"));
  EXPECT_FALSE(c.Has("hidden_size/x"));
}

TEST(JsonConfig, GettersNameFileKeyAndValue) {
  const JsonConfig c = Config("config_odd_ok.json");
  EXPECT_FALSE(c.Has("null"));
  EXPECT_TRUE(c.Has("none"));
  EXPECT_TRUE(c.GetUints("none", 0, 1, 1)->empty());
  EXPECT_EQ(*c.GetUint("deep/a/b/c", 7, 7), 7u);
  EXPECT_EQ(*c.GetUint("/", 0, 9), 2u);
  const std::string at = "config_odd_ok.json: key ";
  EXPECT_EQ(Error(c.GetUint("null", 0, 9)), at + "null: missing");
  EXPECT_EQ(c.GetUint("null", 0, 9).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Error(c.GetUint("negative", 0, 9)), at + "negative: -1 is not in 0 to 9");
  EXPECT_EQ(Error(c.GetUint("deep/a/b/c", 1, 6)), "c: 7 is not in 1 to 6");
  EXPECT_EQ(Error(c.GetUint("float", 0, 9)), at + "float: is 4, an integer expected");
  EXPECT_EQ(Error(c.GetUint("text", 0, 9)), at + "text: is \"x\", an integer expected");
  EXPECT_EQ(Error(c.GetUint("big", 0, ~0ull)), at + "big: is 1.8446744073709552e+19, an integer expected");
  EXPECT_EQ(Error(c.GetPositive("negative", 1)), at + "negative: -1 is not in (0, 1]");
  EXPECT_EQ(Error(c.GetPositive("deep", 1)), at + "deep: is an object, a number expected");
  EXPECT_EQ(Error(c.GetPositive("text", 1)), at + "text: is \"x\", a number expected");
  EXPECT_EQ(Error(c.GetBool("negative")), at + "negative: is -1, true or false expected");
  EXPECT_EQ(Error(c.GetString("none")), at + "none: is an array, a string expected");
  EXPECT_EQ(Error(c.GetUints("deep", 0, 1, 1)), at + "deep: is an object, an array expected");
  EXPECT_EQ(Error(c.GetUints("mixed", 0, 1, 2)), at + "mixed[1]: is \"a\", an integer expected");
  EXPECT_EQ(Error(c.GetUints("mixed", 2, 3, 2)), at + "mixed[0]: 1 is not in 2 to 3");
  EXPECT_EQ(Error(c.GetUints("mixed", 0, 1, 1)), at + "mixed: more than 1 elements");
  EXPECT_EQ(Error(c.GetStrings("mixed")), at + "mixed[0]: is 1, a string expected");
  EXPECT_EQ(Error(c.GetStrings("text")), at + "text: is \"x\", an array expected");
}

TEST(JsonConfig, HasLimits) {
  auto parse = [](const std::string& text) {
    return Error(JsonConfig::Parse({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, "c.json"));
  };
  std::string many = "{\"a\":[0";
  for (int i = 0; i < 1 << 16; ++i) many += ",0";
  EXPECT_EQ(parse(many + "]}"), "c.json: more than 65536 JSON values");
  EXPECT_EQ(parse("{\"a\":1}" + std::string(4 << 20, ' ')), "c.json: 4194311 bytes, at most 4194304 expected");
  EXPECT_EQ(parse("{\"" + std::string((1 << 20) + 1, 'k') + "\":1}"),
            "c.json: JSON text kkkkkkkkkkkkkkkk of 1048577 bytes, at most 1048576 expected");
}

}  // namespace
}  // namespace lockstep::model
