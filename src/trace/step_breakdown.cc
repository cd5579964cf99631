#include "trace/step_breakdown.h"

#include <fmt/format.h>

namespace lockstep::trace {

const char* OwnerName(Owner owner) {
  switch (owner) {
    case Owner::kSchedule:
      return "schedule";
    case Owner::kDraft:
      return "draft";
    case Owner::kAttention:
      return "attention";
    case Owner::kMatmul:
      return "matmul";
    case Owner::kAllReduceWait:
      return "allreduce_wait";
    case Owner::kAllReduceMove:
      return "allreduce_move";
    case Owner::kSample:
      return "sample";
    case Owner::kHostGap:
      return "host_gap";
    case Owner::kOther:
      return "other";
  }
  return "?";
}

void StepBreakdown::Add(const StepBreakdown& other) {
  for (int i = 0; i < kNumOwners; ++i) ticks[i] += other.ticks[i];
  num_steps += other.num_steps;
}

StepSummary Summarize(const StepBreakdown& breakdown) {
  StepSummary summary;
  summary.num_steps = breakdown.num_steps;
  if (breakdown.num_steps == 0) return summary;
  const double us_per_tick_step = NsPerTick() * 1e-3 / static_cast<double>(breakdown.num_steps);
  for (int i = 0; i < kNumOwners; ++i) {
    summary.mean_us[i] = static_cast<double>(breakdown.ticks[i]) * us_per_tick_step;
    summary.total_us += summary.mean_us[i];
  }
  if (summary.total_us > 0) {
    for (int i = 0; i < kNumOwners; ++i) summary.share[i] = summary.mean_us[i] / summary.total_us;
  }
  return summary;
}

std::string StepSummary::ToString() const {
  std::string text;
  for (int i = 0; i < kNumOwners; ++i) {
    text +=
        fmt::format("{:<15} {:>10.1f} us {:>6.1f} %\n", OwnerName(static_cast<Owner>(i)), mean_us[i], share[i] * 100);
  }
  text += fmt::format("{:<15} {:>10.1f} us over {} steps\n", "total", total_us, num_steps);
  return text;
}

}  // namespace lockstep::trace
