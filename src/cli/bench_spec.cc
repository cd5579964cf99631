// bench spec: every drafter beside plain decoding, alternating prompt by prompt, in one run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/prompt.h"
#include "cli/spec_report.h"
#include "cli/text_table.h"
#include "model/config.h"
#include "model/formats/weight_source.h"
#include "step/step_runner.h"

namespace lockstep::cli {
namespace {

struct BenchFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::string spec = "none,ngram,auto";
  std::string shape = "auto";
  std::string prompts;
  int64_t max_tokens = 128;
};

// One row of the table: a drafter over all prompts.
struct Mode {
  Mode(std::string mode_name, engine::Drafter mode_drafter) : name(std::move(mode_name)), drafter(mode_drafter) {}

  std::string name;
  engine::Drafter drafter;
  double decode_secs = 0;
  double plain_decode_secs = 0;  // of plain decoding, the same prompts
  int64_t tokens = 0;            // after the first of each text
  engine::DecodeStats sum;
  bool identical = true;
  std::map<std::string, std::string> digests;  // by prompt: a hash of the ids

  void Add(const Mode& of_one_prompt);
  // By the clock; ledger_secs says the same by the ledger's books.
  double SavedSecs() const { return plain_decode_secs - decode_secs; }
  double Speedup() const { return decode_secs > 0 ? plain_decode_secs / decode_secs : 1.0; }
};

std::string DigestOf(const std::vector<int32_t>& ids) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (int32_t id : ids) hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001b3ull;
  return fmt::format("{:016x}", hash);
}

void Add(const engine::DecodeStats& from, engine::DecodeStats* to) {
  to->plain_steps += from.plain_steps;
  to->plain_secs += from.plain_secs;
  to->rounds += from.rounds;
  to->tokens_of_rounds += from.tokens_of_rounds;
  to->verify_secs += from.verify_secs;
  to->draft_secs += from.draft_secs;
  to->draft_rows += from.draft_rows;
  to->accepted_rows += from.accepted_rows;
  for (size_t d = 0; d < to->accepted_at.size(); ++d) to->accepted_at[d] += from.accepted_at[d];
  for (size_t d = 0; d < to->by_drafter.size(); ++d) to->by_drafter[d].Add(from.by_drafter[d]);
  to->governed = to->governed || from.governed;
  to->ledger_secs += from.ledger_secs;
  to->machine_secs += from.machine_secs;
  to->ledger_balance_secs = from.ledger_balance_secs;
  to->last_decision = from.last_decision;
  for (size_t w = 0; w < to->by_width.size(); ++w) {
    to->by_width[w].accepted += from.by_width[w].accepted;
    to->by_width[w].rejected += from.by_width[w].rejected;
  }
}

void Mode::Add(const Mode& of_one_prompt) {
  decode_secs += of_one_prompt.decode_secs;
  plain_decode_secs += of_one_prompt.plain_decode_secs;
  tokens += of_one_prompt.tokens;
  cli::Add(of_one_prompt.sum, &sum);
  identical = identical && of_one_prompt.identical;
  digests.insert(of_one_prompt.digests.begin(), of_one_prompt.digests.end());
}

double Ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

nlohmann::ordered_json RowJson(const Mode& m, double plain_ms, size_t num_prompts) {
  const double rounds = static_cast<double>(m.sum.rounds);
  nlohmann::ordered_json row;
  row["spec"] = m.name;
  row["tokens_per_second"] = Ratio(static_cast<double>(m.tokens), m.decode_secs);
  row["speedup"] = m.Speedup();
  row["accept_length"] = m.sum.accept_length();
  row["verify_ms"] = Ratio(m.sum.verify_secs * 1e3, rounds);
  row["draft_ms"] = Ratio(m.sum.draft_secs * 1e3, rounds);
  row["plain_ms"] = plain_ms;
  row["verify_over_plain"] = Ratio(Ratio(m.sum.verify_secs * 1e3, rounds), plain_ms);
  row["identical"] = m.identical;
  row["prompts"] = num_prompts;
  row["tokens"] = m.tokens;
  row.update(nlohmann::ordered_json::parse(SpecCountersJson(m.sum)));
  row["measured_seconds"] = m.SavedSecs();
  row["loss_fraction"] = std::max(0.0, Ratio(m.decode_secs, m.plain_decode_secs) - 1);
  row["rounds"] = m.sum.rounds;
  row["digests"] = m.digests;
  nlohmann::ordered_json widths = nlohmann::ordered_json::object();
  for (size_t w = 2; w < m.sum.by_width.size(); ++w) {
    const auto& count = m.sum.by_width[w];
    if (count.accepted + count.rejected == 0) continue;
    widths[std::to_string(w)] = {{"accepted_rows", count.accepted}, {"rejected_rows", count.rejected}};
  }
  row["widths"] = std::move(widths);
  return row;
}

void PrintTable(const std::vector<Mode>& modes, double plain_ms) {
  TextTable table({"spec", "tokens/s", "speedup", "accept length", "verify ms", "draft ms", "plain ms",
                   "verify / plain", "ledger s", "measured s", "identical"});
  for (const Mode& m : modes) {
    const double rounds = static_cast<double>(m.sum.rounds);
    const bool drafts = m.sum.rounds > 0;
    auto cell = [drafts](double value, const char* format) {
      return drafts ? fmt::format(fmt::runtime(format), value) : std::string("-");
    };
    table.AddRow({m.name, fmt::format("{:.1f}", Ratio(static_cast<double>(m.tokens), m.decode_secs)),
                  fmt::format("{:.2f}", m.Speedup()), fmt::format("{:.2f}", m.sum.accept_length()),
                  cell(Ratio(m.sum.verify_secs * 1e3, rounds), "{:.2f}"),
                  cell(Ratio(m.sum.draft_secs * 1e3, rounds), "{:.3f}"), fmt::format("{:.2f}", plain_ms),
                  cell(Ratio(Ratio(m.sum.verify_secs * 1e3, rounds), plain_ms), "{:.2f}"),
                  m.sum.governed ? fmt::format("{:+.3f}", m.sum.ledger_secs) : "-",
                  fmt::format("{:+.3f}", m.SavedSecs()), m.identical ? "yes" : "NO"});
  }
  fmt::print("{}", table.ToString());
}

Result<std::vector<Mode>> ParseModes(const std::string& list) {
  // Plain decoding is always measured: it is what the others are held against.
  std::vector<Mode> modes = {Mode("none", engine::Drafter::kNone)};
  size_t begin = 0;
  while (begin <= list.size()) {
    size_t end = std::min(list.find(',', begin), list.size());
    std::string name = list.substr(begin, end - begin);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    LS_ASSIGN_OR_RETURN(engine::Drafter drafter, engine::ParseDrafter(name, true));
    if (std::none_of(modes.begin(), modes.end(), [&](const Mode& m) { return m.name == name; }))
      modes.emplace_back(name, drafter);
    begin = end + 1;
  }
  return modes;
}

// One drafter on one prompt.
Status RunOne(engine::Engine& engine, engine::Request request, const std::vector<int32_t>& plain_ids,
              const std::string& id, bool verbose, Mode* mode) {
  request.drafter = mode->drafter;
  request.truth = plain_ids;
  LS_ASSIGN_OR_RETURN(engine::Response r, engine.Generate(request));
  mode->decode_secs = r.stats.decode_secs;
  mode->tokens = r.stats.decoded_tokens;
  mode->sum = r.stats;
  mode->digests[id] = DigestOf(r.token_ids);
  mode->identical = r.token_ids == plain_ids;
  if (verbose)
    Log(LogLevel::kInfo, fmt::format("{}, {}: {:.4f} s; {}", id, mode->name, r.stats.decode_secs, SpecLine(r.stats)));
  return OkStatus();
}

Status BenchSpec(const BenchFlags& flags) {
  LS_ASSIGN_OR_RETURN(std::vector<Mode> modes, ParseModes(flags.spec));
  engine::Request base;
  LS_RETURN_IF_ERROR(flags.sampling.Apply(&base));
  LS_ASSIGN_OR_RETURN(base.shape, engine::ParseDraftShape(flags.shape));
  if (flags.max_tokens < 2 && flags.max_tokens != -1) {
    return InvalidArgument(fmt::format("-n {}: must be at least 2, since only decoding is measured", flags.max_tokens));
  }
  base.max_tokens = flags.max_tokens;
  std::vector<NamedPrompt> prompts = BuiltInPrompts();
  if (!flags.prompts.empty()) {
    LS_ASSIGN_OR_RETURN(prompts, ReadPromptFile(flags.prompts));
  }
  LS_ASSIGN_OR_RETURN(auto engine, flags.engine.Load(std::any_of(modes.begin(), modes.end(), [](const Mode& m) {
    return engine::RunsModels(m.drafter);
  })));
  LS_RETURN_IF_ERROR(SamplingFlags::CheckVocab(base.sampling, static_cast<int>(engine->source().config().vocab)));
  LS_ASSIGN_OR_RETURN(PromptMaker maker, PromptMaker::Create(*engine, PromptMode::kAuto));
  LS_ASSIGN_OR_RETURN(PromptMaker raw, PromptMaker::Create(*engine, PromptMode::kRaw));
  InterruptGuard guard([e = engine.get()] { e->Interrupt(); });

  Progress progress;
  size_t num_finished = 0;
  for (size_t p = 0; p < prompts.size(); ++p) {
    engine::Request request = base;
    auto ids = prompts[p].turns.empty() ? raw.FromText(prompts[p].text) : maker.FromTurns(prompts[p].turns);
    if (!ids.ok()) return ids.status().WithContext("prompt " + prompts[p].id);
    request.prompt = std::move(ids).value();
    // The text that the others must equal; its time counts for no row, since it also warms the caches.
    auto plain = engine->Generate(request);
    if (!plain.ok()) return plain.status().WithContext("prompt " + prompts[p].id);
    if (InterruptGuard::interrupted()) break;
    // One plain run more, so that `none` is itself a run held against another, with its own time.
    std::vector<Mode> here;
    for (const Mode& mode : modes) {
      progress.Show(fmt::format("prompt {}/{} ({}), {}", p + 1, prompts.size(), prompts[p].id, mode.name));
      here.emplace_back(mode.name, mode.drafter);
      LS_RETURN_IF_ERROR(RunOne(*engine, request, plain->token_ids, prompts[p].id, flags.engine.verbose, &here.back()));
      here.back().plain_decode_secs = here[0].decode_secs;
      if (InterruptGuard::interrupted()) break;
    }
    if (InterruptGuard::interrupted()) break;  // its texts may have been cut short
    for (size_t m = 0; m < modes.size(); ++m) modes[m].Add(here[m]);
    ++num_finished;
  }
  progress.Clear();
  const Status interrupted = InterruptGuard::interrupted() ? Status(StatusCode::kInterrupted, "interrupted") : Status();
  if (!interrupted.ok()) {
    if (num_finished == 0) return interrupted;
    Log(LogLevel::kInfo, fmt::format("{} of {} prompts were finished", num_finished, prompts.size()));
  }

  const double plain_ms = Ratio(modes[0].sum.plain_secs * 1e3, static_cast<double>(modes[0].sum.plain_steps));
  if (!flags.engine.json_only()) {
    fmt::print("{}, tp {}, threads {} a rank, {} ranks, {}; {} prompts, at most {} tokens each, decoding only\n",
               flags.engine.model, flags.engine.tp, engine->options().threads, flags.engine.rank_mode,
               engine->runner().isa_name(), prompts.size(), flags.max_tokens);
    PrintTable(modes, plain_ms);
    const bool all = std::all_of(modes.begin(), modes.end(), [](const Mode& m) { return m.identical; });
    fmt::print("identical: {}\n", all ? "yes" : "no");
  }
  nlohmann::ordered_json json = {{"model", flags.engine.model},
                                 {"tp", flags.engine.tp},
                                 {"backend", "cpu"},
                                 {"isa", engine->runner().isa_name()},
                                 {"rows", nlohmann::ordered_json::array()}};
  for (const Mode& m : modes) json["rows"].push_back(RowJson(m, plain_ms, num_finished));
  LS_RETURN_IF_ERROR(WriteJson(flags.engine.json, json.dump()));
  LS_RETURN_IF_ERROR(interrupted);
  for (const Mode& m : modes) {
    if (!m.identical) {
      return Status(StatusCode::kMismatch,
                    fmt::format("--spec {}: the tokens differ from plain decoding (identical: false)", m.name));
    }
  }
  return OkStatus();
}

}  // namespace

void AddBenchSpec(CLI::App& bench, Action* action) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = bench.add_subcommand("spec", "Speculation against plain decoding: speed, and the same tokens");
  flags->engine.AddTo(*command);
  flags->engine.AddEmulationTo(*command);
  flags->sampling.AddTo(*command);
  command
      ->add_option(
          "--spec,--speculative-algorithm,--spec-type", flags->spec,
          "Drafters, comma-separated: none, ngram, eagle3, draft, auto; for benches also wrong, oracle, random")
      ->capture_default_str();
  command->add_option("--spec-shape", flags->shape, "auto, chain:K or tree:N; a fixed shape drafts every round")
      ->transform([](std::string s) { return CLI::detail::to_lower(std::move(s)); })
      ->capture_default_str();
  command->add_option("-n,--n-predict,--predict,--steps,--max-tokens", flags->max_tokens, "Tokens a prompt")
      ->capture_default_str();
  flags->engine.AddSpecTo(*command);
  command->add_option("--prompts", flags->prompts, "JSON lines {id, kind, prompt} or {id, kind, messages}");
  command->callback([flags, action] { *action = [flags] { return BenchSpec(*flags); }; });
}

}  // namespace lockstep::cli
