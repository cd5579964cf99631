// explain spec: what steps of each width cost here, and what the governor would choose.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/text_table.h"
#include "engine/drafting.h"
#include "spec/governor.h"
#include "step/step_runner.h"

namespace lockstep::cli {
namespace {

using engine::Drafter;

Status ExplainSpec(const EngineFlags& flags) {
  LS_ASSIGN_OR_RETURN(auto engine, flags.Load(true));
  InterruptGuard guard([e = engine.get()] { e->Interrupt(); });
  LS_RETURN_IF_ERROR(engine->PrepareSpeculation());
  const spec::Governor& governor = engine->governor(Drafter::kAuto);
  if (InterruptGuard::interrupted()) return Status(StatusCode::kInterrupted, "interrupted");
  const spec::PlainTime& plain = governor.plain();
  const spec::CostTable& costs = governor.costs();
  const double plain_secs = plain.Mean(1, 0), plain_lower = plain.Lower(1, 0);

  TextTable table({"rows", "ms", "/ plain", "worst ms", "tokens a round to break even"});
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (int width = 1; width <= costs.max_prepared_rows(); ++width) {
    const double secs = costs.Predict(1, width, 0, plain), worst = costs.Worst(1, width, 0, 0, plain);
    table.AddRow({std::to_string(width), fmt::format("{:.3f}", secs * 1e3), fmt::format("{:.2f}", secs / plain_secs),
                  width == 1 ? "-" : fmt::format("{:.3f}", worst * 1e3),
                  width == 1 ? "1" : fmt::format("{:.2f}", secs / plain_secs)});
    rows.push_back({{"rows", width}, {"ms", secs * 1e3}, {"over_plain", secs / plain_secs}, {"worst_ms", worst * 1e3}});
  }

  nlohmann::ordered_json candidates = nlohmann::ordered_json::array();
  TextTable drafters({"drafter", "proposal ms", "rows", "tokens/s expected"});
  candidates.push_back({{"drafter", "none"}, {"nodes", 0}, {"tokens_per_second", 1 / plain_secs}, {"draft_ms", 0}});
  spec::Governor::Outlook best{0, 1 / plain_secs};
  std::string choice = "none";
  for (int d = 0; d < governor.num_drafters(); ++d) {
    const spec::Governor::Outlook outlook = governor.Expect(d, 1, 0);
    const double draft_secs = costs.PredictDraft(d);  // 0: it costs next to nothing
    candidates.push_back({{"drafter", governor.drafter_name(d)},
                          {"nodes", outlook.nodes},
                          {"tokens_per_second", outlook.tokens_per_second},
                          {"draft_ms", draft_secs * 1e3}});
    drafters.AddRow({governor.drafter_name(d), draft_secs > 0 ? fmt::format("{:.3f}", draft_secs * 1e3) : "-",
                     outlook.nodes > 0 ? std::to_string(outlook.nodes + 1) : "none",
                     outlook.nodes > 0 ? fmt::format("{:.1f}", outlook.tokens_per_second) : "-"});
    if (outlook.nodes == 0 || outlook.tokens_per_second <= best.tokens_per_second) continue;
    best = outlook;
    choice = governor.drafter_name(d);
  }
  const std::string reason =
      best.nodes == 0 ? std::string("no drafter is expected to pay")
                      : fmt::format(
                            "{} rows a round where it has a proposal: {:.1f} tokens/s expected against {:.1f} plain, "
                            "going by an ordinary acceptance, as nothing was drafted yet",
                            best.nodes + 1, best.tokens_per_second, 1 / plain_secs);
  if (!flags.json_only()) {
    fmt::print("{}, tp {}, threads {} a rank, {}; context 0, one request\n", flags.model, flags.tp,
               engine->options().threads, engine->runner().isa_name());
    fmt::print("a plain step: {:.3f} ms, at least {:.3f} (95 %)\n{}", plain_secs * 1e3, plain_lower * 1e3,
               table.ToString());
    fmt::print("the ledger starts with {:.3f} ms, gains {:.2f} % of plain decoding, and holds {:.3f} ms at most\n",
               spec::LedgerOptions().start_steps * plain_lower * 1e3, governor.ledger().epsilon() * 100,
               spec::LedgerOptions().cap_steps * plain_lower * 1e3);
    fmt::print("{}choice: {} ({})\n", drafters.ToString(), choice, reason);
  }
  const nlohmann::ordered_json json = {{"model", flags.model},
                                       {"tp", flags.tp},
                                       {"plain_ms", plain_secs * 1e3},
                                       {"plain_lower_ms", plain_lower * 1e3},
                                       {"rows", rows},
                                       {"candidates", candidates},
                                       {"choice", choice},
                                       {"reason", reason}};
  return WriteJson(flags.json, json.dump());
}

}  // namespace

void AddExplain(CLI::App& app, Action* action) {
  CLI::App* explain = app.add_subcommand("explain", "Say what was chosen and why: spec (drafting)");
  explain->require_subcommand(1);
  auto flags = std::make_shared<EngineFlags>();
  CLI::App* command = explain->add_subcommand("spec", "Cost of a step by width, and what the governor would choose");
  flags->AddTo(*command);
  flags->AddSpecTo(*command);
  command->callback([flags, action] { *action = [flags] { return ExplainSpec(*flags); }; });
}

}  // namespace lockstep::cli
