// Every head and config of tests/data/eagle3 (made by tools/eagle3_corpus.py) must get the verdict of its manifest.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "model/formats/eagle3_config.h"
#include "model/formats/eagle3_head.h"
#include "model/formats/eagle3_test_util.h"
#include "model/formats/heap_counter.h"
#include "model/formats/safetensors.h"
#include "model/inspect.h"

namespace lockstep::model {
namespace {

using Json = nlohmann::json;
using testing::FakeTarget;
using testing::HeadFolder;
using testing::HeadShape;

const std::string kFolder = std::string(LS_SOURCE_DIR) + "/tests/data/eagle3/";

Json Manifest() {
  std::ifstream in(kFolder + "manifest.json");
  return Json::parse(in, nullptr, false);
}

FakeTarget TinyTarget() {
  HeadShape s;
  s.target_hidden = 4;
  s.vocab = 6;
  s.target_layers = 12;
  return FakeTarget(s);
}

Status Open(const std::string& kind, const std::string& path, const FakeTarget& target, const HeadOptions& options) {
  if (kind == "head") {
    auto head = OpenEagle3Head(path, target, options);
    return head.ok() ? OkStatus() : head.status();
  }
  auto json = JsonConfig::Open(path);
  if (!json.ok()) return json.status();
  auto config = Eagle3ConfigFromJson(*json, &target.config());
  return config.ok() ? OkStatus() : config.status();
}

TEST(Eagle3Corpus, EveryEntryGetsItsVerdict) {
  const FakeTarget target = TinyTarget();
  const Json manifest = Manifest();
  ASSERT_TRUE(manifest.is_array());
  ASSERT_GE(manifest.size(), 150u);
  std::set<std::string> codes;
  for (const Json& entry : manifest) {
    const std::string path = entry["path"], contains = entry["contains"];
    SCOPED_TRACE(path);
    for (const HeadOptions& options : {HeadOptions{}, HeadOptions{.weight_dtype = std::nullopt}}) {
      const uint64_t before = HeapBytesRequested();
      auto start = std::chrono::steady_clock::now();
      const Status status = Open(entry["kind"], kFolder + path, target, options);
      EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 1.0);
      EXPECT_LT(HeapBytesRequested() - before, 1u << 20);
      EXPECT_EQ(StatusCodeName(status.code()), std::string(entry["code"])) << status.message();
      EXPECT_NE(status.message().find(contains), std::string::npos) << status.message() << "\n  lacks: " << contains;
      if (!status.ok()) {
        EXPECT_TRUE(status.message().starts_with(kFolder)) << status.message();
      }
      for (char c : status.message()) ASSERT_TRUE(c >= 0x20 && c < 0x7f) << "not one printable line";
      codes.insert(StatusCodeName(status.code()));
    }
  }
  EXPECT_EQ(codes.size(), 5u);
}

// Whatever is wrong with the head, its tensors are listed.
TEST(Eagle3Corpus, InspectPrintsEveryHeadThatIsSafetensors) {
  for (const Json& entry : Manifest()) {
    const std::string path = entry["path"];
    if (entry["kind"] != "head") continue;
    SCOPED_TRACE(path);
    const bool readable = Safetensors::Open(kFolder + path).ok();
    auto json = InspectJson(kFolder + path);
    auto text = InspectText(kFolder + path);
    EXPECT_EQ(json.ok(), readable);
    EXPECT_EQ(text.ok(), readable);
    if (!readable) continue;
    EXPECT_FALSE(Json::parse(*json, nullptr, false).is_discarded());
    for (char c : *text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f));
  }
}

TEST(Eagle3Corpus, OtherTargetsAreRefusedWithBothNumbers) {
  HeadFolder folder;
  const std::string path = folder.Write();
  auto error = [&](const HeadShape& s) {
    auto head = OpenEagle3Head(path, FakeTarget(s));
    return head.ok() ? "" : head.status().message().substr(path.size() + 1);
  };
  EXPECT_EQ(error({.target_hidden = 96}),
            "config.json: key hidden_size: the head is for a hidden size of 64, the target's is 96");
  EXPECT_EQ(error({.vocab = 128256}),
            "config.json: key vocab_size: the head is for a vocabulary of 96, the target's is 128256");
  EXPECT_EQ(
      error({.target_layers = 8}),
      "config.json: key eagle_config/eagle_aux_hidden_state_layer_ids: 8 in [1, 5, 8] is not in 0 to 7 (outputs of a "
      "target's layers; it has 8)");
  HeadFolder usual;
  usual.config["eagle_config"] = "null";
  auto shallow = OpenEagle3Head(usual.Write(), FakeTarget(HeadShape{.target_layers = 6}));
  ASSERT_FALSE(shallow.ok());
  EXPECT_NE(shallow.status().message().find("a target of 6 layers is too shallow"), std::string::npos);
}

// In a matrix that is quantised, and one whose scale no block holds.
TEST(Eagle3Corpus, ValuesThatNoWeightHas) {
  const FakeTarget target;
  struct Case {
    const char *type, *bytes, *says;
  };
  for (const Case& c :
       {Case{"F32", "\x00\x00\xc0\x7f", "element 70 is nan"}, Case{"F32", "\x00\x00\x80\xff", "element 70 is -inf"},
        Case{"F32", "\xca\xf2\x49\x71", "element 70 is 1e+30, too large for Q8_0"},
        Case{"BF16", "\x80\x7f", "element 70 is inf"}, Case{"F16", "\x01\x7e", "element 70 is nan"}}) {
    HeadFolder folder({}, c.type);
    auto& t = *std::find_if(folder.tensors.begin(), folder.tensors.end(),
                            [](const auto& tensor) { return tensor.name == "midlayer.mlp.up_proj.weight"; });
    const size_t bytes = std::string(c.type) == "F32" ? 4 : 2;
    std::memcpy(&t.data[70 * bytes], c.bytes, bytes);
    auto head = OpenEagle3Head(folder.Write(), target);
    ASSERT_FALSE(head.ok());
    EXPECT_EQ(head.status().code(), StatusCode::kCorruptFile);
    EXPECT_NE(head.status().message().find(std::string("tensor midlayer.mlp.up_proj.weight: ") + c.says),
              std::string::npos)
        << head.status().message();
  }
}

// Any one byte of the config may be another: no crash, and an error is one line that names the file.
TEST(Eagle3Corpus, EveryChangedByteOfAConfigIsSurvived) {
  HeadShape s;
  const FakeTarget target(s);
  HeadFolder folder;
  std::ifstream in(folder.Write() + "/config.json");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  size_t num_refused = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    for (char c : {'\0', '9', '"', ']', '-', 'x'}) {
      std::string changed = text;
      changed[i] = c;
      auto json = JsonConfig::Parse({reinterpret_cast<const uint8_t*>(changed.data()), changed.size()}, "config.json");
      if (!json.ok()) continue;
      auto config = Eagle3ConfigFromJson(*json, &target.config());
      num_refused += !config.ok();
      if (config.ok()) continue;
      EXPECT_TRUE(config.status().message().starts_with("config.json: key ")) << config.status().message();
    }
  }
  EXPECT_GT(num_refused, 50u);
}

}  // namespace
}  // namespace lockstep::model
