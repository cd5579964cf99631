// teacher_forced: reads given tokens and writes, for each, the log probability of the next one and the likeliest one.
//
//   build/teacher_forced -m MODEL --ids IN.json --out OUT.json [--tp N] [--kv-cache-dtype f16|f32]
//
// IN.json is a list of ids, or an object with such a list under "ids" or "tokens". OUT.json is {"ids", "logprob",
// "argmax"}; entry i of the last two is about ids[i + 1], given ids[0..i]: tools/perplexity_compare.py reads it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/fp_env.h"
#include "cli/engine_flags.h"
#include "model/config.h"
#include "model/formats/weight_source.h"
#include "step/step_runner.h"

namespace lockstep {
namespace {

struct Flags {
  cli::EngineFlags engine;
  std::string ids, out;
};

Result<std::vector<int32_t>> ReadIds(const std::string& path) {
  std::ifstream file(path);
  if (!file) return NotFound(path + ": cannot be read");
  nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (json.is_object()) json = json.contains("ids") ? json["ids"] : json.value("tokens", nlohmann::json());
  const bool good =
      json.is_array() && std::all_of(json.begin(), json.end(), [](const auto& id) { return id.is_number_integer(); });
  if (!good || json.size() < 2) return InvalidArgument(path + ": must hold a JSON list of at least two ids");
  return json.get<std::vector<int32_t>>();
}

// log softmax(logits)[token], in double: this program judges accuracy, so the law's fixed orders do not bind it.
double LogProbability(std::span<const float> logits, int32_t token) {
  const double peak = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - peak);
  return static_cast<double>(logits[static_cast<size_t>(token)]) - peak - std::log(sum);
}

Status TeacherForced(const Flags& flags) {
  constexpr int kChunk = 64;  // rows of a step, all of which want logits
  LS_ASSIGN_OR_RETURN(std::vector<int32_t> ids, ReadIds(flags.ids));
  cli::EngineFlags engine_flags = flags.engine;
  engine_flags.context = static_cast<int>(ids.size());
  LS_ASSIGN_OR_RETURN(auto engine, engine_flags.Load());
  const auto vocab = static_cast<int32_t>(engine->source().config().vocab);
  for (int32_t id : ids) {
    if (id < 0 || id >= vocab)
      return InvalidArgument(fmt::format("{}: id {}: the vocabulary has {}", flags.ids, id, vocab));
  }
  LS_RETURN_IF_ERROR(engine->Prefill({}));  // pages to the end of the context
  step::StepRunner& runner = engine->runner();
  std::vector<double> logprob;
  std::vector<int32_t> argmax;
  const int count = static_cast<int>(ids.size()) - 1;
  cli::Progress progress;
  for (int at = 0; at < count; at += kChunk) {
    const int rows = std::min(kChunk, count - at);
    progress.Show(fmt::format("{} of {} tokens", at, count));
    step::DraftTree chain;
    chain.Reset(ids[static_cast<size_t>(at)]);
    for (int i = 1; i < rows; ++i) chain.Add(i - 1, ids[static_cast<size_t>(at + i)]);
    step::StepInput& in = runner.input();
    step::AddTree(in, 0, chain, at, runner.pages_per_sequence());
    in.sequences[0].sampling = {};
    LS_RETURN_IF_ERROR(runner.Run());
    for (int i = 0; i < rows; ++i) {
      const int32_t best = runner.output().tokens[i];
      if (best < 0) return Internal(fmt::format("the logits after token {} are not finite", at + i));
      argmax.push_back(best);
      logprob.push_back(LogProbability(runner.logits(i), ids[static_cast<size_t>(at + i + 1)]));
    }
  }
  progress.Clear();
  double sum = 0;
  for (double x : logprob) sum += x;
  std::ofstream out(flags.out);
  out << nlohmann::json{{"ids", ids}, {"logprob", logprob}, {"argmax", argmax}}.dump() << "\n";
  out.close();
  if (!out) return InvalidArgument("--out " + flags.out + ": cannot be written");
  fmt::print("{} tokens predicted, perplexity {:.4f}, {}\n", count, std::exp(-sum / count), runner.isa_name());
  return OkStatus();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::SetFpEnv();
  CLI::App app("Log probabilities and likeliest tokens of a given text.");
  lockstep::Flags flags;
  flags.engine.AddTo(app);
  app.add_option("--ids", flags.ids, "JSON list of token ids")->required();
  app.add_option("--out", flags.out, "Where the result goes")->required();
  CLI11_PARSE(app, argc, argv);
  const lockstep::Status status = lockstep::TeacherForced(flags);
  if (!status.ok()) fmt::print(stderr, "teacher_forced: {}\n", status.message());
  return lockstep::ExitCode(status.code());
}
