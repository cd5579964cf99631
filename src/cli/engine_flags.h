// The flags that every command with a model shares, and the engine they describe.
//
// Errors:   kInvalidArgument  a value out of its range; names the flag and the value
// Threads:  the main thread
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace CLI {
class App;
}

namespace lockstep::cli {

inline constexpr char kBadRankTimeout[] = "LOCKSTEP_RANK_TIMEOUT: must be a number of seconds above 0 and below 1e6";

struct EngineFlags {
  std::string model;
  int tp = 1;
  int threads = 0;  // 0: usable cores / tp
  int context = 0;
  int prefill_chunk = 512;
  std::optional<std::string> kv_type, key_type, value_type;  // of the cache
  std::string rank_mode = "thread";
  std::string json;  // "": no JSON, "-": stdout, else a file
  bool verbose = false;
  std::vector<std::string> drafts;  // folder of a head, file of a model
  std::string draft_type = "q8_0";  // of a head
  bool force_draft = false;
  double spec_max_slowdown_percent = 25;
  std::optional<std::string> emulate_all_reduce_us;

  void AddTo(CLI::App& command);
  // Of commands that draft.
  void AddSpecTo(CLI::App& command);
  // Of benches.
  void AddEmulationTo(CLI::App& command);
  // may_draft: whether a request may draft with a model, so that a head is worth loading.
  Result<std::unique_ptr<engine::Engine>> Load(bool may_draft = false) const;
  bool json_only() const { return json == "-"; }

 private:
  Status SetDrafts(engine::EngineOptions* options) const;
  Result<std::optional<DType>> DraftType() const;
  // Keys and values have one type.
  Result<DType> KvType() const;
};

struct SamplingFlags {
  step::SamplingParams params;  // but for the seed
  std::string seed = "0";
  std::vector<std::string> logit_bias;  // "TOKEN+BIAS", "TOKEN-BIAS"
  std::vector<std::string> stop;
  bool ignore_eos = false;

  void AddTo(CLI::App& command);
  // Checks all that can be checked without a model.
  Status Apply(engine::Request* request) const;
  // What Apply made, against a model's vocabulary; names the flag.
  static Status CheckVocab(const step::SamplingParams& sampling, int vocab);
};

// Checks the file before long work: kInvalidArgument if it exists and holds something else than JSON or nothing.
Status CheckJsonTarget(const std::string& target);
// Writes `text` to stdout ("-") or the file; "" does nothing.
Status WriteJson(const std::string& target, const std::string& text);

// A line on stderr that is overwritten: on a terminal only.
class Progress {
 public:
  Progress();
  ~Progress();
  void Show(const std::string& text);
  void Clear();

 private:
  bool terminal_;
  bool shown_ = false;
};

}  // namespace lockstep::cli
