// Every file and folder of tests/data/safetensors (made by tools/safetensors_corpus.py) must get the verdict of its
// manifest, quickly and in little memory.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/formats/heap_counter.h"
#include "model/formats/json_config.h"
#include "model/formats/safetensors.h"
#include "model/inspect.h"

namespace lockstep::model {
namespace {

using Json = nlohmann::json;

const std::string kFolder = std::string(LS_SOURCE_DIR) + "/tests/data/safetensors/";

Json Manifest() {
  std::ifstream in(kFolder + "manifest.json");
  return Json::parse(in, nullptr, false);
}

Status Open(const std::string& kind, const std::string& path) {
  if (kind == "config") {
    auto config = JsonConfig::Open(path);
    return config.ok() ? OkStatus() : config.status();
  }
  auto files = Safetensors::Open(path);
  return files.ok() ? OkStatus() : files.status();
}

TEST(SafetensorsCorpus, EveryEntryGetsItsVerdictWithinASecondAnd64MiB) {
  Json manifest = Manifest();
  ASSERT_TRUE(manifest.is_array());
  ASSERT_GE(manifest.size(), 130u);
  for (const Json& entry : manifest) {
    const std::string path = entry["path"], contains = entry["contains"];
    SCOPED_TRACE(path);
    const uint64_t before = HeapBytesRequested();
    auto start = std::chrono::steady_clock::now();
    const Status status = Open(entry["kind"], kFolder + path);
    const double secs = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(secs, 1.0);
    EXPECT_LT(HeapBytesRequested() - before, 64u << 20);
    EXPECT_EQ(StatusCodeName(status.code()), std::string(entry["code"])) << status.message();
    EXPECT_NE(status.message().find(contains), std::string::npos) << status.message() << "\n  lacks: " << contains;
    EXPECT_EQ(status.message().empty(), status.ok());
    if (!status.ok()) {
      EXPECT_TRUE(status.message().starts_with(kFolder)) << status.message();
    }
    for (char c : status.message()) ASSERT_TRUE(c >= 0x20 && c < 0x7f) << "not one printable line";
  }
}

TEST(SafetensorsCorpus, InspectPrintsJsonOrRefuses) {
  for (const Json& entry : Manifest()) {
    if (entry["kind"] == "config") continue;
    const std::string path = entry["path"];
    SCOPED_TRACE(path);
    auto json = InspectJson(kFolder + path);
    auto text = InspectText(kFolder + path);
    EXPECT_EQ(json.ok(), entry["code"] == "ok");
    EXPECT_EQ(text.ok(), entry["code"] == "ok");
    if (!json.ok()) continue;
    EXPECT_FALSE(Json::parse(*json, nullptr, false).is_discarded());
    for (char c : *text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f));
  }
}

std::string Head() {
  std::ifstream in(kFolder + "eagle3_ok/model.safetensors", std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

// A prefix of a valid file is never valid and never crashes: every length is met at every place.
TEST(SafetensorsCorpus, EveryPrefixOfAHeadIsRefused) {
  const std::string raw = Head();
  ASSERT_GT(raw.size(), 3000u);
  for (size_t n = 0; n < raw.size(); ++n) {
    std::vector<uint8_t> prefix(raw.begin(), raw.begin() + static_cast<ptrdiff_t>(n));  // exact size, for the sanitizer
    ASSERT_FALSE(Safetensors::Parse(prefix, "prefix.safetensors").ok()) << n;
  }
}

TEST(SafetensorsCorpus, EveryFlippedByteIsSurvived) {
  const std::string raw = Head();
  size_t num_refused = 0;
  for (size_t i = 0; i < raw.size(); ++i) {
    for (int value : {0x00, 0x7f, 0xff, raw[i] ^ 1}) {
      std::vector<uint8_t> bytes(raw.begin(), raw.end());
      bytes[i] = static_cast<uint8_t>(value);
      auto file = Safetensors::Parse(bytes, "flipped.safetensors");
      num_refused += !file.ok();
      if (!file.ok()) continue;
      EXPECT_FALSE(InspectText(**file).empty());
    }
  }
  EXPECT_GT(num_refused, 1000u);
}

}  // namespace
}  // namespace lockstep::model
