// head_acceptance: how much of given texts a head drafts, in rounds of chains, to compare an engine's head with its
// trainer's on the same text.
//
//   build/head_acceptance -m MODEL --texts IN.json [--draft-model FOLDER] [--nodes 4] [--seed 1] [--tp N]
//   build/head_acceptance .. --draft-quantization none --dump OUT.bin    (for tools/head_top1.py)
//
// IN.json is what tools/train_eagle3.py evaluate writes: {"texts": [{"prompt_ids", "greedy_ids", "t0.8_ids"}, ..],
// "greedy": {"whole": {"chain:4": {"accepted_by_depth"}}}, "t0.8": ..}. The text is forced: a round's tokens are the
// text's, whatever the model would have sampled. Prints the share of rounds that accepted so deep, ours and the file's.
//
// OUT.bin, of each text: int32 number of pairs n; int32 token of each pair [n]; f32 taps [n, all taps]; int32 the head's
// likeliest token behind each pair [n]. The same head in another program must find the same tokens from the same taps.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/fp_env.h"
#include "cli/engine_flags.h"
#include "engine/drafts.h"
#include "model/config.h"
#include "model/taps.h"
#include "spec/model_proposer.h"
#include "step/step_runner.h"

namespace lockstep {
namespace {

struct Flags {
  cli::EngineFlags engine;
  std::string texts;
  std::string dump;
  int nodes = 4;
  uint64_t seed = 1;
};

struct Count {
  int64_t rounds = 0;
  std::vector<int64_t> accepted;  // [depth - 1]
};

// Reads tokens [begin, end) of the text as rows of one step, which leave their taps.
Status Read(step::StepRunner& runner, std::span<const int32_t> text, size_t begin, size_t end) {
  step::StepInput& in = runner.input();
  step::AddPrefill(in, 0, text.subspan(begin, end - begin), static_cast<int>(begin), false,
                   runner.pages_per_sequence());
  in.sequences[0].sampling = {};
  in.save_taps = 1;
  return runner.Run();
}

Status Walk(engine::Engine& engine, const Flags& flags, float temperature, const std::vector<int32_t>& prompt,
            const std::vector<int32_t>& continuation, Count* count) {
  step::StepRunner& runner = engine.runner();
  std::vector<int32_t> text = prompt;
  text.insert(text.end(), continuation.begin(), continuation.end());
  LS_RETURN_IF_ERROR(engine.Prefill({}));  // pages to the end of the context
  LS_RETURN_IF_ERROR(Read(runner, text, 0, prompt.size()));
  spec::SteadyClock clock;
  spec::ModelProposer proposer(&runner, engine.drafts().head, 0, &clock);
  step::DraftTree tree;
  std::vector<float> probability;
  for (size_t known = prompt.size() + 1; known < text.size();) {
    spec::ProposeContext context;
    context.tokens = std::span(text).first(known);
    context.position = static_cast<int64_t>(known) - 1;
    context.budget = {flags.nodes, spec::ShapeLimit::kChain};
    context.seed = flags.seed;
    context.temperature = temperature;
    proposer.Propose(context, &tree, &probability);
    size_t accepted = 0;
    while (accepted < static_cast<size_t>(tree.num_nodes) && known + accepted < text.size() &&
           tree.tokens[accepted + 1] == text[known + accepted])
      ++accepted;
    ++count->rounds;
    for (size_t depth = 0; depth < accepted; ++depth) ++count->accepted[depth];
    const size_t next = std::min(known + accepted + 1, text.size());
    LS_RETURN_IF_ERROR(Read(runner, text, known - 1, next - 1));
    known = next;
  }
  return OkStatus();
}

template <typename T>
void Write(std::ofstream& out, const T* values, size_t count) {
  out.write(reinterpret_cast<const char*>(values), static_cast<std::streamsize>(count * sizeof(T)));
}

// The head's likeliest token at every pair of a text, and what it had to find it from.
Status DumpText(engine::Engine& engine, const std::vector<int32_t>& text, std::ofstream& out) {
  step::StepRunner& runner = engine.runner();
  const int head = engine.drafts().head, num = static_cast<int>(text.size()) - 1;
  if (num + 1 > model::kTapSlots || num > runner.draft_context(head)) return InvalidArgument("a text is too long");
  LS_RETURN_IF_ERROR(engine.Prefill({}));
  LS_RETURN_IF_ERROR(Read(runner, text, 0, text.size()));
  std::vector<int32_t> best(static_cast<size_t>(num), -1);
  for (int begin = 0; begin < num; begin += spec::kDraftWindow) {
    const int rows = std::min(spec::kDraftWindow, num - begin);
    step::StepInput& in = runner.draft_input(head);
    in.num_sequences = 1;
    in.sequences[0] = {};
    in.sequences[0].kv = {begin, 0, 0};
    in.sequences[0].num_rows = in.sequences[0].num_logits_rows = in.num_rows = in.num_logits_rows = rows;
    in.fused = 1;
    for (int i = 0; i < rows; ++i) {
      const int k = begin + i;
      in.rows[i] = {text[static_cast<size_t>(k) + 1], k, 0, i - 1, k, 1, k};
      in.logits_rows[i] = i;
    }
    LS_RETURN_IF_ERROR(runner.RunDraft(head));
    for (int i = 0; i < rows; ++i) {
      step::DraftCandidate candidate;
      if (runner.Candidates(head, i, false, {&candidate, 1}) == 1)
        best[static_cast<size_t>(begin + i)] = candidate.token;
    }
  }
  const model::Eagle3Config& config = runner.draft_config(head).eagle3;
  Write(out, &num, 1);
  Write(out, text.data() + 1, static_cast<size_t>(num));
  for (int k = 0; k < num; ++k) Write(out, runner.taps(0, 0, k), config.tap_layers.size() * config.target_hidden);
  Write(out, best.data(), best.size());
  return OkStatus();
}

Status Run(const Flags& flags) {
  std::ifstream file(flags.texts);
  if (!file) return NotFound(flags.texts + ": cannot be read");
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object() || !json.contains("texts")) return InvalidArgument(flags.texts + ": holds no \"texts\"");
  LS_ASSIGN_OR_RETURN(auto engine, flags.engine.Load(true));
  if (engine->drafts().head < 0) return InvalidArgument("no head: name one with --draft-model FOLDER");
  const auto vocab = static_cast<int32_t>(engine->source().config().vocab);
  const int most = std::min(engine->options().context, engine->options().prefill_chunk);
  for (const auto& text : json.at("texts")) {
    const auto prompt = text.at("prompt_ids").get<std::vector<int32_t>>();
    if (prompt.empty()) return InvalidArgument(flags.texts + ": a prompt has no tokens");
    for (const char* key : {"greedy_ids", "t0.8_ids"}) {
      auto ids = text.at(key).get<std::vector<int32_t>>();
      ids.insert(ids.begin(), prompt.begin(), prompt.end());
      if (static_cast<int>(ids.size()) > most)
        return InvalidArgument(fmt::format("{}: a text of {} tokens; --ctx-size and --chunked-prefill-size allow {}",
                                           flags.texts, ids.size(), most));
      for (int32_t id : ids) {
        if (id < 0 || id >= vocab)
          return InvalidArgument(fmt::format("{}: id {}: the vocabulary has {}", flags.texts, id, vocab));
      }
    }
  }
  if (!flags.dump.empty()) {
    std::ofstream out(flags.dump, std::ios::binary | std::ios::trunc);
    for (const auto& text : json.at("texts")) {
      auto ids = text.at("prompt_ids").get<std::vector<int32_t>>();
      const auto more = text.at("greedy_ids").get<std::vector<int32_t>>();
      ids.insert(ids.end(), more.begin(), more.end());
      LS_RETURN_IF_ERROR(DumpText(*engine, ids, out));
    }
    out.close();
    return out ? OkStatus() : Internal(flags.dump + ": cannot be written");
  }
  const std::string shape = fmt::format("chain:{}", flags.nodes);
  for (const auto& [name, temperature] : {std::pair{"greedy", 0.0f}, {"t0.8", 0.8f}}) {
    Count count;
    count.accepted.resize(static_cast<size_t>(flags.nodes));
    for (const auto& text : json.at("texts")) {
      LS_RETURN_IF_ERROR(Walk(*engine, flags, temperature, text.at("prompt_ids").get<std::vector<int32_t>>(),
                              text.at(std::string(name) + "_ids").get<std::vector<int32_t>>(), &count));
    }
    fmt::print("{} {}: {} rounds; by depth, here and in the file:", name, shape, count.rounds);
    const auto theirs = json.at(name).at("whole").at(shape).at("accepted_by_depth").get<std::vector<double>>();
    for (size_t depth = 0; depth < count.accepted.size() && count.rounds > 0; ++depth) {
      fmt::print(" {:.3f} ({:.3f})", static_cast<double>(count.accepted[depth]) / static_cast<double>(count.rounds),
                 theirs.at(depth));
    }
    fmt::print("\n");
  }
  return OkStatus();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::SetFpEnv();
  CLI::App app("Acceptance of a head on given texts, by depth.");
  lockstep::Flags flags;
  flags.engine.AddTo(app);
  flags.engine.AddSpecTo(app);
  app.add_option("--texts", flags.texts, "JSON of the trainer's evaluation")->required();
  app.add_option("--dump", flags.dump, "Write the head's likeliest tokens and its taps there, and stop");
  app.add_option("--nodes", flags.nodes, "Draft tokens a round")->check(CLI::Range(1, 8));
  app.add_option("--seed", flags.seed, "Of the noise of the sampled texts");
  CLI11_PARSE(app, argc, argv);
  lockstep::Status status;
  try {
    status = lockstep::Run(flags);
  } catch (const nlohmann::json::exception& error) {  // a key that is missing or of another type
    status = lockstep::InvalidArgument(flags.texts + ": " + error.what());
  }
  if (!status.ok()) fmt::print(stderr, "head_acceptance: {}\n", status.message());
  return lockstep::ExitCode(status.code());
}
