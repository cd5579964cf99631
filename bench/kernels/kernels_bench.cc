// Times of the CPU kernels: matmul by type, rows and place of the weights, attention by context and rows.
//
//     cmake --preset release -DLS_BENCH=ON && ninja -C build kernels_bench
//     build/bench/kernels/kernels_bench --benchmark_repetitions=20 --benchmark_report_aggregates_only
//
// On a shared machine read the `min` column.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "base/env.h"
#include "device/cpu/features.h"
#include "kernels/cpu/kernels.h"
#include "kernels/pack.h"

namespace lockstep::kernels {
namespace {

// The machine's best set, or the one that LOCKSTEP_CPU_ISA names.
const CpuKernels& Choose() {
  using device::cpu::CpuIsa;
  auto isa = device::cpu::ParseIsa(Env::Get().cpu_isa);
  if (!isa.ok()) {
    std::fprintf(stderr, "LOCKSTEP_CPU_ISA: %s\n", isa.status().message().c_str());
    std::exit(2);
  }
  switch (*isa) {
    case CpuIsa::kAmx:
      return AmxKernels();
    case CpuIsa::kAvx512:
      return Avx512Kernels();
    case CpuIsa::kAvxVnni:
      return AvxVnniKernels();
    case CpuIsa::kAvx2:
      return Avx2Kernels();
    case CpuIsa::kGeneric:
      break;
  }
  return GenericKernels();
}

const CpuKernels& Best() {
  static const CpuKernels& kernels = Choose();
  return kernels;
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};
template <class T>
using Aligned = std::unique_ptr<T[], Free>;

template <class T>
Aligned<T> Allocate(size_t count) {
  const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
  auto* p = static_cast<T*>(std::aligned_alloc(64, bytes));
  std::fill_n(reinterpret_cast<uint8_t*>(p), bytes, uint8_t{0});
  return Aligned<T>(p);
}

// Matrices of a model: K 576, or 768 in superblocks; as many matrices as reach `total_bytes`, walked one after the other as a step does.
void Matmul(benchmark::State& state, DType dtype, int64_t total_bytes) {
  const int rows = static_cast<int>(state.range(0));
  const DTypeInfo info = GetDTypeInfo(dtype);
  const int k = info.block_elems > 32 ? 768 : 576;
  constexpr int kOutputs = 1536;
  const int64_t bytes = PackedBytes(dtype, kOutputs, k);
  const int64_t count = std::max<int64_t>(1, total_bytes / bytes);
  std::mt19937 rng(1);
  std::vector<uint8_t> tensor(static_cast<size_t>(kOutputs) * k / info.block_elems * info.block_bytes);
  for (uint8_t& b : tensor) b = static_cast<uint8_t>(rng() & 0x3f);  // small floats, no infinities
  Aligned<uint8_t> packed = Allocate<uint8_t>(static_cast<size_t>(bytes * count));
  std::vector<PackedMatrix> weights;
  for (int64_t i = 0; i < count; ++i) {
    PackRequest request{dtype, tensor.data(), k, kOutputs, nullptr, 0, 0, k};
    weights.push_back(Pack(request, packed.get() + i * bytes, 0, kOutputs / 16));
  }
  std::vector<float> x(static_cast<size_t>(rows * k)), out(static_cast<size_t>(rows * kOutputs));
  for (float& v : x) v = static_cast<float>(rng() % 2001) / 1000.0f - 1.0f;
  std::vector<int8_t> q(x.size());
  std::vector<float> scale(x.size() / 32), scaled_sum(scale);
  std::vector<int32_t> sum(scale.size()), half_sum(sum);
  QuantRows quant = {q.data(), scale.data(), sum.data(), scaled_sum.data(), half_sum.data(), k, k / 32};
  for (int r = 0; r < rows; ++r) Best().quantise_row(&x[static_cast<size_t>(r * k)], k, quant, r);
  LeafPlan plan = {1, {k}, {0}, {0}};
  for (auto _ : state) {
    for (const PackedMatrix& w : weights) {
      Best().matmul({&w, 0, w.num_groups, &quant, x.data(), k, rows, &plan, {out.data(), nullptr, nullptr}, kOutputs});
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * bytes * count);
}

// One kv head of a layer, `rows` rows of one sequence at the end of `context` keys, three query heads.
void Attention(benchmark::State& state, DType kv) {
  const int context = static_cast<int>(state.range(0)), rows = static_cast<int>(state.range(1));
  constexpr int kDh = 64, kHeads = 3;
  const int pages = (context + kKvChunk - 1) / kKvChunk;
  const DTypeInfo info = GetDTypeInfo(kv);
  const int64_t page_bytes = kKvChunk * kDh / info.block_elems * info.block_bytes;
  std::mt19937 rng(1);
  Aligned<uint8_t> keys = Allocate<uint8_t>(static_cast<size_t>(pages * page_bytes));
  Aligned<uint8_t> values = Allocate<uint8_t>(static_cast<size_t>(pages * page_bytes));
  std::vector<float> line(kDh), q(static_cast<size_t>(rows * kHeads * kDh)), out(q.size());
  for (int j = 0; j < pages * kKvChunk; ++j) {
    for (Aligned<uint8_t>* side : {&keys, &values}) {
      for (float& v : line) v = static_cast<float>(rng() % 2001) / 1000.0f - 1.0f;
      Best().store_kv(line.data(), kv, side->get() + j * page_bytes / kKvChunk, kDh);
    }
  }
  for (float& v : q) v = static_cast<float>(rng() % 2001) / 1000.0f - 1.0f;
  std::vector<const void*> page_k, page_v;
  for (int p = 0; p < pages; ++p) {
    page_k.push_back(keys.get() + p * page_bytes);
    page_v.push_back(values.get() + p * page_bytes);
  }
  Aligned<float> scratch = Allocate<float>(static_cast<size_t>(AttentionScratchElems(kDh)));
  std::vector<AttentionRow> items;
  for (int r = 0; r < rows; ++r) {
    const size_t at = static_cast<size_t>(r * kHeads * kDh);
    items.push_back({&q[at], &out[at], std::max(1, context - rows + 1 + r), pages, nullptr, nullptr});
  }
  for (auto _ : state) {
    Best().attention({items.data(), rows, kHeads, kDh, 0.125f, kv, page_k.data(), page_v.data(), scratch.get()});
    benchmark::ClobberMemory();
  }
}

void MatmulArguments(benchmark::internal::Benchmark* b) {
  for (int rows : {1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64}) b->Arg(rows);
  b->Unit(benchmark::kMicrosecond);
  b->ComputeStatistics("min", [](const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); });
}

void AttentionArguments(benchmark::internal::Benchmark* b) {
  for (int context : {32, 512, 4096}) {
    for (int rows : {1, 2, 4, 8, 16}) b->Args({context, rows});
  }
  b->Unit(benchmark::kMicrosecond);
  b->ComputeStatistics("min", [](const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); });
}

// In the second-level cache, and beyond all caches.
BENCHMARK_CAPTURE(Matmul, q4_1_cached, DType::kQ4_1, 1)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, q4_1_memory, DType::kQ4_1, 64 << 20)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, q8_0_cached, DType::kQ8_0, 1)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, q8_0_memory, DType::kQ8_0, 64 << 20)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, q4_0_cached, DType::kQ4_0, 1)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, q5_0_cached, DType::kQ5_0, 1)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, q5_0_memory, DType::kQ5_0, 64 << 20)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, q5_1_cached, DType::kQ5_1, 1)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, q5_1_memory, DType::kQ5_1, 64 << 20)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, q4_k_cached, DType::kQ4_K, 1)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, q4_k_memory, DType::kQ4_K, 64 << 20)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, q5_k_cached, DType::kQ5_K, 1)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, q5_k_memory, DType::kQ5_K, 64 << 20)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, q6_k_cached, DType::kQ6_K, 1)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, q6_k_memory, DType::kQ6_K, 64 << 20)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Matmul, f16_cached, DType::kF16, 1)->Apply(MatmulArguments);
BENCHMARK_CAPTURE(Attention, f16, DType::kF16)->Apply(AttentionArguments);
BENCHMARK_CAPTURE(Attention, f32, DType::kF32)->Apply(AttentionArguments);
BENCHMARK_CAPTURE(Attention, q8_0, DType::kQ8_0)->Apply(AttentionArguments);

}  // namespace
}  // namespace lockstep::kernels

BENCHMARK_MAIN();
