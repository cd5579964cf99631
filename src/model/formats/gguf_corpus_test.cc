// Every file of tests/data/gguf (made by tools/gguf_corpus.py) must get the verdict of its manifest, quickly and in
// little memory.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/config.h"
#include "model/formats/gguf.h"
#include "model/formats/heap_counter.h"
#include "model/inspect.h"

namespace lockstep::model {
namespace {

using Json = nlohmann::json;

const std::string kFolder = std::string(LS_SOURCE_DIR) + "/tests/data/gguf/";

// The stage that refused the file and its status; empty stage: none did.
std::pair<std::string, Status> Load(const std::string& path) {
  auto file = GgufFile::Open(path);
  if (!file.ok()) return {"open", file.status()};
  auto config = ConfigFromGguf(**file);
  if (!config.ok()) return {"config", config.status()};
  Status tensors = CheckTensors(**file, *config);
  return {tensors.ok() ? "" : "tensors", tensors};
}

Json Manifest() {
  std::ifstream in(kFolder + "manifest.json");
  return Json::parse(in, nullptr, false);
}

TEST(GgufCorpus, EveryFileGetsItsVerdictWithinASecondAnd64MiB) {
  Json manifest = Manifest();
  ASSERT_TRUE(manifest.is_array());
  ASSERT_GE(manifest.size(), 60u);
  for (const Json& entry : manifest) {
    std::string file = entry["file"], contains = entry["contains"];
    SCOPED_TRACE(file);
    uint64_t before = HeapBytesRequested();
    auto start = std::chrono::steady_clock::now();
    auto [stage, status] = Load(kFolder + file);
    double secs = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(secs, 1.0);
    EXPECT_LT(HeapBytesRequested() - before, 64u << 20);
    EXPECT_EQ(stage, std::string(entry["stage"])) << status.message();
    EXPECT_EQ(StatusCodeName(status.code()), std::string(entry["code"])) << status.message();
    EXPECT_NE(status.message().find(contains), std::string::npos) << status.message() << "\n  lacks: " << contains;
    if (!status.ok()) {
      EXPECT_NE(status.message().find(".gguf: "), std::string::npos) << status.message();
    }
    for (char c : status.message()) ASSERT_TRUE(c >= 0x20 && c < 0x7f) << "not one printable line";
  }
}

// inspect must never do worse than refuse, and its JSON must parse whatever the file holds.
TEST(GgufCorpus, InspectPrintsJsonOrRefuses) {
  for (const Json& entry : Manifest()) {
    std::string file = entry["file"];
    SCOPED_TRACE(file);
    auto json = InspectJson(kFolder + file);
    auto text = InspectText(kFolder + file);
    EXPECT_EQ(json.ok(), text.ok());
    if (entry["stage"] != "open") {
      EXPECT_TRUE(json.ok()) << json.status().message();
    }
    if (json.ok()) {
      EXPECT_FALSE(Json::parse(*json, nullptr, false).is_discarded());
    }
  }
}

// A prefix of a valid file is never valid and never crashes: every length is met at every place.
TEST(GgufCorpus, EveryPrefixOfAModelIsRefused) {
  std::ifstream in(kFolder + "model_ok.gguf", std::ios::binary);
  std::string raw((std::istreambuf_iterator<char>(in)), {});
  ASSERT_GT(raw.size(), 1000u);
  for (size_t n = 0; n < raw.size(); ++n) {
    std::vector<uint8_t> prefix(raw.begin(), raw.begin() + static_cast<ptrdiff_t>(n));  // exact size, for the sanitizer
    ASSERT_FALSE(GgufFile::Parse(prefix, "prefix.gguf").ok()) << n;
  }
}

TEST(GgufCorpus, EveryFlippedByteIsSurvived) {
  std::ifstream in(kFolder + "model_ok.gguf", std::ios::binary);
  std::string raw((std::istreambuf_iterator<char>(in)), {});
  for (size_t i = 0; i < raw.size(); ++i) {
    for (int value : {0x00, 0x7f, 0xff, raw[i] ^ 1}) {
      std::vector<uint8_t> bytes(raw.begin(), raw.end());
      bytes[i] = static_cast<uint8_t>(value);
      auto file = GgufFile::Parse(bytes, "flipped.gguf", GgufMode::kInspect);
      if (!file.ok()) continue;
      EXPECT_FALSE(InspectText(**file).empty());
    }
  }
}

}  // namespace
}  // namespace lockstep::model
