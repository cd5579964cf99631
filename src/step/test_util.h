// Helpers of tests on whole models: tiny models written by tools/make_tiny_model.py, and the logits of every row.
//
// Shapes:   logits [rows, V], row after row
// Units:    tokens
// Requires: python3; LS_SOURCE_DIR, which ls_module defines for tests
// Errors:   a false LS_CHECK ends the test program
// Threads:  one
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/formats/weight_source.h"
#include "step/step_runner.h"

namespace lockstep::step::testing {

// A folder of its own for this process, removed when it ends. Forked ranks leave by _exit and remove nothing.
class ScratchFolder {
 public:
  ScratchFolder() {
    path_ = std::filesystem::temp_directory_path() / ("lockstep-test-" + std::to_string(getpid()));
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string File(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline const ScratchFolder& Scratch() {
  static const ScratchFolder folder;
  return folder;
}

// The path of the model that make_tiny_model.Tiny(<fields>) describes, e.g. "heads=9, kv_heads=3, dtype='Q4_0'".
// `edit` is Python that may change `keys` and `tensors` (a list of name, dims, type, bytes) before they are written.
// The same arguments give the same file, made once a process.
inline std::string TinyModel(const std::string& fields, const std::string& edit = "") {
  static std::map<std::pair<std::string, std::string>, std::string> made;
  std::string& path = made[{fields, edit}];
  if (!path.empty()) return path;
  const std::string stem = Scratch().File("model" + std::to_string(made.size()));
  std::ofstream(stem + ".py") << "import sys\nsys.dont_write_bytecode = True\nsys.path.insert(0, '" LS_SOURCE_DIR
                                 "/tools')\nimport struct\nimport make_tiny_model\nimport gguf_writer as w\n"
                                 "keys, tensors = make_tiny_model.build(make_tiny_model.Tiny("
                              << fields << "))\n"
                              << edit << "\nopen('" << stem << ".gguf', 'wb').write(w.write(keys, tensors))\n";
  const int rc = std::system(("python3 " + stem + ".py").c_str());
  LS_CHECK_EQ(rc, 0);
  path = stem + ".gguf";
  return path;
}

// Ids that differ from place to place, below `vocab`.
inline std::vector<int32_t> SomeTokens(int count, int vocab, uint32_t seed) {
  std::vector<int32_t> tokens;
  uint32_t state = seed * 2654435761u + 12345;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens.push_back(static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab)));
  }
  return tokens;
}

inline bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// A runner whose sequences own pages that lie in no order.
class Session {
 public:
  explicit Session(const std::string& path, StepOptions options = {}) {
    auto source = model::OpenGgufWeights(path);
    LS_CHECK(source.ok());
    vocab_ = static_cast<int>((*source)->config().vocab);
    if (options.context == 0) options.context = static_cast<int>((*source)->config().context_length);
    if (options.tp * options.threads > 2) options.oversubscribed = true;
    options.timeout_secs = 60;
    auto runner = StepRunner::Create(std::move(source).value(), options);
    if (!runner.ok()) std::fprintf(stderr, "%s\n", runner.status().message().c_str());
    LS_CHECK(runner.ok());
    runner_ = std::move(runner).value();
    for (int s = 0; s < options.num_sequences; ++s) {
      for (int p = 0; p < runner_->pages_per_sequence(); ++p) {
        runner_->page_table(s)[p] = runner_->num_pages() - 1 - (p * options.num_sequences + s);
      }
    }
  }

  StepRunner& runner() { return *runner_; }
  int vocab() const { return vocab_; }

  // Adds a tree to the step under construction.
  void Add(int sequence, const DraftTree& tree, int committed) {
    StepInput& in = runner_->input();
    AddTree(in, sequence, tree, committed, runner_->pages_per_sequence());
    StepSequence& s = in.sequences[in.num_sequences - 1];
    s.sampling = {};
    s.num_prompt_tokens = s.num_output_tokens = 0;
  }
  void AddChain(int sequence, std::span<const int32_t> tokens, int committed) {
    DraftTree tree;
    tree.Reset(tokens[0]);
    for (size_t i = 1; i < tokens.size(); ++i) tree.Add(static_cast<int>(i) - 1, tokens[i]);
    Add(sequence, tree, committed);
  }
  void Run() {
    Status status = runner_->Run();
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
    LS_CHECK(status.ok());
  }
  std::vector<float> Logits(int logits_idx) {
    std::span<const float> row = runner_->logits(logits_idx);
    return {row.begin(), row.end()};
  }

  // The logits after each of tokens[from, end), read in steps of `chunk` rows.
  std::vector<std::vector<float>> Feed(int sequence, std::span<const int32_t> tokens, int from, int chunk) {
    std::vector<std::vector<float>> rows;
    for (int at = from; at < static_cast<int>(tokens.size()); at += chunk) {
      const int n = std::min(chunk, static_cast<int>(tokens.size()) - at);
      AddChain(sequence, tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(n)), at);
      Run();
      for (int i = 0; i < n; ++i) rows.push_back(Logits(i));
    }
    return rows;
  }

 private:
  std::unique_ptr<StepRunner> runner_;
  int vocab_ = 0;
};

}  // namespace lockstep::step::testing
