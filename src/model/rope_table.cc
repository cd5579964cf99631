#include "model/rope_table.h"

#include "kernels/ref/elementary64.h"

namespace lockstep::model {

RopeTable MakeRopeTable(const ModelConfig& c, int num_positions) {
  using kernels::ref::Exp64;
  using kernels::ref::Log64;
  RopeTable table;
  table.half = static_cast<int>(c.head_dim) / 2;
  const double log_theta = Log64(c.rope_theta);
  std::vector<double>& frequency = table.frequency;
  frequency.resize(static_cast<size_t>(table.half));
  for (int i = 0; i < table.half; ++i) {
    frequency[i] = Exp64(-log_theta * (2.0 * i / c.head_dim));
    if (c.rope_scaling == RopeScaling::kLinear) frequency[i] /= c.rope_factor;
    if (c.rope_scaling == RopeScaling::kFreqFactors) frequency[i] /= c.rope_freq_factors[i];
  }
  table.cos.resize(static_cast<size_t>(num_positions) * table.half);
  table.sin.resize(table.cos.size());
  return table;
}

void RopeTable::Fill(int begin, int end) {
  for (int p = begin; p < end; ++p) {
    for (int i = 0; i < half; ++i) {
      double sin64, cos64;
      kernels::ref::SinCos64(p * frequency[static_cast<size_t>(i)], &sin64, &cos64);
      cos[static_cast<size_t>(p) * half + i] = static_cast<float>(cos64);
      sin[static_cast<size_t>(p) * half + i] = static_cast<float>(sin64);
    }
  }
}

}  // namespace lockstep::model
