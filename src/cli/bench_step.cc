// bench step: what a step of T rows costs, and who owns each microsecond of it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/text_table.h"
#include "device/cpu/read_bandwidth.h"
#include "model/config.h"
#include "model/formats/weight_source.h"
#include "step/step_runner.h"

namespace lockstep::cli {
namespace {

struct StepFlags {
  EngineFlags engine;
  std::string widths = "1,2,4,8,16";
  int context = 32;
  int reps = 40;
  bool roofline = false;
};

struct WidthResult {
  int width = 0;
  double us_min = 0, us_p50 = 0;
  std::vector<trace::StepSummary> by_member;
  step::StepCensus census;
  int64_t bytes = 0;  // that the step reads and writes in memory
};

// What reading alone would take: the measured bandwidth of the same threads over as much memory.
struct Roofline {
  size_t working_set_bytes = 0;  // that a step of the narrowest width reads
  double gbps = 0;

  double LimitUs(const WidthResult& r) const { return static_cast<double>(r.bytes) / gbps / 1e3; }
  double OverLimit(const WidthResult& r) const { return r.us_min / LimitUs(r); }  // the best step over the best reading
};

Result<std::vector<int>> ParseWidths(const std::string& list) {
  std::vector<int> widths;
  size_t begin = 0;
  while (begin <= list.size()) {
    const size_t end = std::min(list.find(',', begin), list.size());
    int width = 0;
    auto [rest, error] = std::from_chars(list.data() + begin, list.data() + end, width);
    if (error != std::errc() || rest != list.data() + end || width < 1 || width > step::kMaxStepRows) {
      return InvalidArgument(fmt::format("--widths {}: must be numbers from 1 to {}", list, step::kMaxStepRows));
    }
    widths.push_back(width);
    begin = end + 1;
  }
  return widths;
}

// Ids that differ from place to place; their text does not matter for time.
std::vector<int32_t> SomeTokens(int count, uint32_t vocab) {
  std::vector<int32_t> tokens;
  uint32_t state = 12345;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens.push_back(static_cast<int32_t>((state >> 8) % vocab));
  }
  return tokens;
}

// A step of `width` rows behind `context` tokens: a chain whose rows all want logits, or above the widest tree a chunk
// of a prompt. Nothing is committed, so every repetition is the same step.
Status OneStep(step::StepRunner& runner, int context, int width, std::span<const int32_t> tokens) {
  step::StepInput& in = runner.input();
  if (width <= step::kMaxTreeRows) {
    step::DraftTree tree;
    tree.Reset(tokens[0]);
    for (int i = 1; i < width; ++i) tree.Add(i - 1, tokens[static_cast<size_t>(i)]);
    step::AddTree(in, 0, tree, context, runner.pages_per_sequence());
  } else {
    step::AddPrefill(in, 0, tokens.first(static_cast<size_t>(width)), context, true, runner.pages_per_sequence());
  }
  in.sequences[0].sampling = {};
  runner.watch().Stamp(trace::Owner::kSchedule);
  return runner.Run();
}

Result<WidthResult> Measure(engine::Engine& engine, const StepFlags& flags, int width,
                            std::span<const int32_t> tokens) {
  step::StepRunner& runner = engine.runner();
  // Caches and branch predictors settle.
  for (int i = 0; i < 3; ++i) LS_RETURN_IF_ERROR(OneStep(runner, flags.context, width, tokens));
  runner.TakeBreakdowns();
  runner.watch().Start();
  std::vector<double> us;
  for (int i = 0; i < flags.reps && !InterruptGuard::interrupted(); ++i) {
    auto start = std::chrono::steady_clock::now();
    LS_RETURN_IF_ERROR(OneStep(runner, flags.context, width, tokens));
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  if (us.empty()) return Status(StatusCode::kInterrupted, "interrupted");
  std::sort(us.begin(), us.end());
  WidthResult result;
  result.width = width;
  result.us_min = us.front();
  result.us_p50 = us[us.size() / 2];
  for (const trace::StepBreakdown& b : runner.TakeBreakdowns()) result.by_member.push_back(trace::Summarize(b));
  result.census = runner.census();
  result.bytes = runner.Traffic(flags.context, width, width <= step::kMaxTreeRows ? width : 1).total();
  return result;
}

// Keeps the better of this measurement and what `roofline` holds.
Status MeasureRoofline(step::StepRunner& runner, int context, int narrowest, Roofline* roofline) {
  const step::StepTraffic traffic = runner.Traffic(context, narrowest, 1);
  roofline->working_set_bytes = static_cast<size_t>(traffic.weights + traffic.kv);
  device::cpu::ReadBandwidthOptions options = {roofline->working_set_bytes, {}, 60};
  const step::StepOptions& o = runner.options();
  for (const std::vector<int>& rank : o.cpus) options.cpus.insert(options.cpus.end(), rank.begin(), rank.end());
  if (options.cpus.empty()) options.cpus.assign(static_cast<size_t>(o.tp) * static_cast<size_t>(o.threads), -1);
  LS_ASSIGN_OR_RETURN(double gbps, device::cpu::MeasureReadGbps(options));
  roofline->gbps = std::max(roofline->gbps, gbps);
  return OkStatus();
}

nlohmann::ordered_json RowJson(const WidthResult& r, const WidthResult& first, const Roofline* roofline) {
  nlohmann::ordered_json row;
  row["width"] = r.width;
  row["step_us_min"] = r.us_min;
  row["step_us_p50"] = r.us_p50;
  row["over_width1"] = r.us_p50 / first.us_p50;
  for (int o = 0; o < trace::kNumOwners; ++o) {
    row["breakdown_us"][trace::OwnerName(static_cast<trace::Owner>(o))] =
        r.by_member[0].mean_us[static_cast<size_t>(o)];
  }
  row["all_reduces"] = r.census.all_reduces;
  row["kernels"] = r.census.kernels;
  row["host_syncs"] = 0;  // a CPU step runs on the host; it never waits for it
  if (roofline != nullptr) {
    row["bytes"] = r.bytes;
    row["limit_us"] = roofline->LimitUs(r);
    row["over_limit"] = roofline->OverLimit(r);
  }
  return row;
}

void Print(const std::vector<WidthResult>& results, const Roofline* roofline) {
  std::vector<std::string> columns = {"width", "min us", "p50 us", "over width 1"};
  if (roofline != nullptr) columns.insert(columns.end(), {"bytes", "limit us", "over limit"});
  TextTable table(columns);
  for (const WidthResult& r : results) {
    std::vector<std::string> row = {std::to_string(r.width), fmt::format("{:.0f}", r.us_min),
                                    fmt::format("{:.0f}", r.us_p50),
                                    fmt::format("{:.2f}", r.us_p50 / results[0].us_p50)};
    if (roofline != nullptr) {
      row.insert(row.end(), {std::to_string(r.bytes), fmt::format("{:.0f}", roofline->LimitUs(r)),
                             fmt::format("{:.2f}", roofline->OverLimit(r))});
    }
    table.AddRow(std::move(row));
  }
  if (roofline != nullptr) {
    fmt::print("limit: the same threads read {:.0f} MB at {:.1f} GB/s; over limit: min over limit\n",
               static_cast<double>(roofline->working_set_bytes) / 1e6, roofline->gbps);
  }
  fmt::print("{}\nwhere a step's time goes, us (mean), by rank and thread:\n", table.ToString());
  std::vector<std::string> heading = {"width  rank.thread"};
  for (int o = 0; o < trace::kNumOwners; ++o) heading.push_back(trace::OwnerName(static_cast<trace::Owner>(o)));
  TextTable owners(heading);
  for (const WidthResult& r : results) {
    for (size_t m = 0; m < r.by_member.size(); ++m) {
      std::vector<std::string> row = {fmt::format("{:>5}  {}", r.width, m)};
      for (double us : r.by_member[m].mean_us) row.push_back(fmt::format("{:.1f}", us));
      owners.AddRow(std::move(row));
    }
  }
  fmt::print("{}", owners.ToString());
}

Status BenchStep(StepFlags flags) {
  LS_ASSIGN_OR_RETURN(std::vector<int> widths, ParseWidths(flags.widths));
  if (flags.context < 0) return InvalidArgument(fmt::format("--context {}: must be 0 or more", flags.context));
  if (flags.reps < 1) return InvalidArgument(fmt::format("--reps {}: must be at least 1", flags.reps));
  const int widest = *std::max_element(widths.begin(), widths.end());
  flags.engine.prefill_chunk = std::max(flags.engine.prefill_chunk, widest);
  LS_ASSIGN_OR_RETURN(auto engine, flags.engine.Load());
  const int64_t needed = int64_t{flags.context} + widest;
  if (needed > engine->options().context) {
    return InvalidArgument(fmt::format("--context {} and a width of {} need --ctx-size {} or more, it is {}",
                                       flags.context, widest, needed, engine->options().context));
  }
  InterruptGuard guard([e = engine.get()] { e->Interrupt(); });
  std::vector<int32_t> tokens = SomeTokens(flags.context + widest, engine->source().config().vocab);
  LS_RETURN_IF_ERROR(engine->Prefill(std::span(tokens).first(static_cast<size_t>(flags.context))));
  std::span<const int32_t> behind = std::span(tokens).subspan(static_cast<size_t>(flags.context));
  std::vector<WidthResult> results;
  Progress progress;
  // Before the steps and after them: on a shared machine one of the two may meet a busy moment.
  Roofline roofline;
  const int narrowest = *std::min_element(widths.begin(), widths.end());
  if (flags.roofline) LS_RETURN_IF_ERROR(MeasureRoofline(engine->runner(), flags.context, narrowest, &roofline));
  for (int width : widths) {
    progress.Show(fmt::format("width {}", width));
    auto result = Measure(*engine, flags, width, behind);
    if (InterruptGuard::interrupted()) return Status(StatusCode::kInterrupted, "interrupted");
    LS_RETURN_IF_ERROR(result.status());
    results.push_back(std::move(result).value());
  }
  if (flags.roofline) LS_RETURN_IF_ERROR(MeasureRoofline(engine->runner(), flags.context, narrowest, &roofline));
  const Roofline* const limit = flags.roofline ? &roofline : nullptr;
  progress.Clear();
  if (!flags.engine.json_only()) {
    fmt::print("{}, tp {}, threads {} a rank, {}; context {}, logits for all rows of up to 256\n", flags.engine.model,
               flags.engine.tp, engine->options().threads, engine->runner().isa_name(), flags.context);
    Print(results, limit);
  }
  nlohmann::ordered_json json = {
      {"model", flags.engine.model},        {"tp", flags.engine.tp},    {"backend", "cpu"},
      {"isa", engine->runner().isa_name()}, {"context", flags.context}, {"rows", nlohmann::ordered_json::array()}};
  if (limit != nullptr) {
    json["read_bytes"] = limit->working_set_bytes;
    json["read_gbps"] = limit->gbps;
  }
  for (const WidthResult& r : results) json["rows"].push_back(RowJson(r, results[0], limit));
  return WriteJson(flags.engine.json, json.dump());
}

}  // namespace

void AddBenchStep(CLI::App& bench, Action* action) {
  auto flags = std::make_shared<StepFlags>();
  CLI::App* command = bench.add_subcommand("step", "One step by width, and where its time goes");
  flags->engine.AddTo(*command);
  flags->engine.AddEmulationTo(*command);
  command->add_option("--widths", flags->widths, "Rows of a step, comma-separated")->capture_default_str();
  command->add_option("--context", flags->context, "Tokens in the cache before the step")->capture_default_str();
  command->add_option("--reps", flags->reps, "Steps a width")->capture_default_str();
  command->add_flag("--roofline", flags->roofline, "Beside each width: bytes, and the time that reading them takes");
  command->callback([flags, action] { *action = [flags] { return BenchStep(*flags); }; });
}

}  // namespace lockstep::cli
