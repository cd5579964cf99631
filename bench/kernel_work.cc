// Fixed calls of the AVX2 kernels, for a counter of instructions: bench/instruction_budget.py runs it under callgrind,
// which counts inside Measured only. Prints the name of each case in the order in which they run.
//
//     kernel_work          each case once
//     kernel_work --list   names only
//     kernel_work --plant  one call in eight is made twice: an excess that the guard must find
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/cpu/features.h"
#include "kernels/cpu/kernels.h"
#include "kernels/pack.h"

namespace lockstep::kernels {
namespace {

struct Case {
  std::string name;
  std::function<void()> call;
  std::vector<std::shared_ptr<void>> keep;  // what the call points to
};

// Sizes of a small model's layer; K of three blocks a leaf and more.
constexpr int kK = 576, kOutputs = 192, kCalls = 8, kDh = 64, kHeads = 3, kContext = 300;

struct Free {
  void operator()(void* p) const { std::free(p); }
};
template <class T>
struct Buffer {  // aligned and zeroed; copies share it
  explicit Buffer(size_t count) : memory(std::aligned_alloc(64, (count * sizeof(T) + 64) / 64 * 64), Free()) {
    std::memset(memory.get(), 0, count * sizeof(T));
  }
  T* get() const { return static_cast<T*>(memory.get()); }
  std::shared_ptr<void> memory;
};

// Small numbers and no infinities in every type.
Buffer<uint8_t> SomeBytes(size_t count) {
  Buffer<uint8_t> bytes(count);
  std::mt19937 rng(1);
  for (size_t i = 0; i < count; ++i) bytes.get()[i] = static_cast<uint8_t>(rng() & 0x3f);
  return bytes;
}

Buffer<float> SomeFloats(size_t count) {
  Buffer<float> x(count);
  std::mt19937 rng(2);
  for (size_t i = 0; i < count; ++i) x.get()[i] = static_cast<float>(rng() % 2001) / 1000.0f - 1.0f;
  return x;
}

Case Matmul(const CpuKernels& k, DType dtype, int rows) {
  const DTypeInfo info = GetDTypeInfo(dtype);
  const int cols = info.block_elems > kBlock ? 512 : kK;  // whole superblocks
  const Buffer<uint8_t> tensor = SomeBytes(static_cast<size_t>(kOutputs) * cols / info.block_elems * info.block_bytes);
  PackRequest request = {};
  request.dtype = dtype;
  request.source = tensor.get();
  request.source_cols = cols;
  request.num_outputs = kOutputs;
  request.k_count = cols;
  // One group more, since kernels prefetch what lies behind.
  const Buffer<uint8_t> packed(static_cast<size_t>(PackedBytes(dtype, kOutputs + 16, cols)));
  const PackedMatrix weight = Pack(request, packed.get(), 0, kOutputs / 16);
  const Buffer<float> x = SomeFloats(static_cast<size_t>(rows * cols)), out(static_cast<size_t>(rows * kOutputs));
  const Buffer<int8_t> q(static_cast<size_t>(rows * cols));
  const size_t blocks = static_cast<size_t>(rows * cols / kBlock);
  const Buffer<float> scale(blocks), scaled_sum(blocks);
  const Buffer<int32_t> sum(blocks), half_sum(blocks);
  QuantRows quant = {};
  quant.q = q.get();
  quant.scale = scale.get();
  quant.sum = sum.get();
  quant.scaled_sum = scaled_sum.get();
  quant.half_sum = half_sum.get();
  quant.ld_q = cols;
  quant.ld_block = cols / kBlock;
  for (int r = 0; r < rows; ++r) k.quantise_row(x.get() + r * cols, cols, quant, r);
  LeafPlan plan = {};
  plan.num_leaves = 1;
  plan.k_end[0] = cols;
  return {
      fmt::format("matmul {} rows {}", info.name, rows),
      [=, &k] {
        MatmulArgs args = {};
        args.weight = &weight;
        args.group_end = weight.num_groups;
        args.quant = &quant;
        args.x = x.get();
        args.ld_x = cols;
        args.rows = rows;
        args.plan = &plan;
        args.out[0] = out.get();
        args.ld_out = kOutputs;
        k.matmul(args);
      },
      {packed.memory, x.memory, out.memory, q.memory, scale.memory, scaled_sum.memory, sum.memory, half_sum.memory}};
}

Case Attention(const CpuKernels& k, DType kv, int rows) {
  constexpr int kPages = (kContext + kKvChunk - 1) / kKvChunk;
  const size_t page_bytes = static_cast<size_t>(kKvChunk) * kDh * GetDTypeInfo(kv).block_bytes;
  const Buffer<uint8_t> keys(kPages * page_bytes), values(kPages * page_bytes);
  const Buffer<float> numbers = SomeFloats(static_cast<size_t>(kPages) * kKvChunk * kDh);
  k.store_kv(numbers.get(), kv, keys.get(), kPages * kKvChunk * kDh);
  k.store_kv(numbers.get(), kv, values.get(), kPages * kKvChunk * kDh);
  std::vector<const void*> page_k, page_v;
  for (size_t p = 0; p < kPages; ++p) {
    page_k.push_back(keys.get() + p * page_bytes);
    page_v.push_back(values.get() + p * page_bytes);
  }
  const Buffer<float> q = SomeFloats(static_cast<size_t>(rows * kHeads * kDh)),
                      out(static_cast<size_t>(rows * kHeads * kDh));
  const Buffer<float> scratch(static_cast<size_t>(AttentionScratchElems(kDh)));
  std::vector<AttentionRow> items(static_cast<size_t>(rows));
  for (int r = 0; r < rows; ++r) {
    AttentionRow& item = items[static_cast<size_t>(r)];
    item.q = q.get() + r * kHeads * kDh;
    item.out = out.get() + r * kHeads * kDh;
    item.num_keys = kContext - rows + 1 + r;
    item.num_linear_chunks = kPages;
  }
  return {fmt::format("attention {} rows {}", GetDTypeInfo(kv).name, rows),
          [=, &k] {
            AttentionArgs args = {};
            args.rows = items.data();
            args.num_rows = rows;
            args.num_heads = kHeads;
            args.head_dim = kDh;
            args.scale = 0.125f;
            args.kv_dtype = kv;
            args.page_k = page_k.data();
            args.page_v = page_v.data();
            args.scratch = scratch.get();
            k.attention(args);
          },
          {keys.memory, values.memory, q.memory, out.memory, scratch.memory}};
}

Case QuantiseRow(const CpuKernels& k) {
  const Buffer<float> x = SomeFloats(kK), scale(kK / kBlock), scaled_sum(kK / kBlock);
  const Buffer<int8_t> q(kK);
  const Buffer<int32_t> sum(kK / kBlock), half_sum(kK / kBlock);
  QuantRows quant = {};
  quant.q = q.get();
  quant.scale = scale.get();
  quant.sum = sum.get();
  quant.scaled_sum = scaled_sum.get();
  quant.half_sum = half_sum.get();
  quant.ld_q = kK;
  quant.ld_block = kK / kBlock;
  return {"quantise_row",
          [=, &k] { k.quantise_row(x.get(), kK, quant, 0); },
          {x.memory, q.memory, scale.memory, scaled_sum.memory, sum.memory, half_sum.memory}};
}

Case AddNorm(const CpuKernels& k) {
  const Buffer<float> x = SomeFloats(kK), a = SomeFloats(kK), b = SomeFloats(kK), weight = SomeFloats(kK), out(kK);
  return {"add_norm 2 partials",
          [=, &k] {
            const float* partials[] = {a.get(), b.get()};
            const int merges_after[] = {0, 1};
            NormArgs args = {};
            args.x = x.get();
            args.partials = partials;
            args.merges_after = merges_after;
            args.num_partials = 2;
            args.weight = weight.get();
            args.eps = 1e-5f;
            args.d = kK;
            args.out = out.get();
            k.add_norm(args);
          },
          {x.memory, a.memory, b.memory, weight.memory, out.memory}};
}

Case SiluMul(const CpuKernels& k) {
  const Buffer<float> gate = SomeFloats(kK), up = SomeFloats(kK), y(kK);
  return {"silu_mul", [=, &k] { k.silu_mul(gate.get(), up.get(), y.get(), kK); }, {gate.memory, up.memory, y.memory}};
}

Case Argmax(const CpuKernels& k) {
  const Buffer<float> x = SomeFloats(4096);
  return {"argmax", [=, &k] { k.argmax(x.get(), 4096); }, {x.memory}};
}

std::vector<Case> Cases(const CpuKernels& k) {
  std::vector<Case> cases;
  for (int rows : {1, 2, 3, 4, 8, 16}) cases.push_back(Matmul(k, DType::kQ4_1, rows));
  for (DType dtype :
       {DType::kQ4_0, DType::kQ5_0, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K, DType::kF16, DType::kBF16, DType::kF32}) {
    for (int rows : {1, 4}) cases.push_back(Matmul(k, dtype, rows));
  }
  for (int rows : {1, 4, 16}) cases.push_back(Attention(k, DType::kF16, rows));
  cases.push_back(Attention(k, DType::kF32, 1));
  cases.push_back(QuantiseRow(k));
  cases.push_back(AddNorm(k));
  cases.push_back(SiluMul(k));
  cases.push_back(Argmax(k));
  return cases;
}

}  // namespace

// The name by which callgrind is told what to count.
extern "C" __attribute__((noinline)) void Measured(const std::function<void()>& call, int num_calls) {
  for (int i = 0; i < num_calls; ++i) call();
}

}  // namespace lockstep::kernels

int main(int argc, char** argv) {
  using namespace lockstep;
  const std::string option = argc > 1 ? argv[1] : "";
  if (argc > 2 || (!option.empty() && option != "--list" && option != "--plant")) {
    fmt::print(stderr, "kernel_work: {}: must be --list or --plant\n", option);
    return 2;
  }
  if (!device::cpu::Supports(device::cpu::Features(), device::cpu::CpuIsa::kAvx2)) {
    fmt::print(stderr, "kernel_work: this machine has no AVX2\n");
    return 77;
  }
  for (const auto& c : kernels::Cases(kernels::Avx2Kernels())) {
    fmt::print("{}\n", c.name);
    if (option != "--list") kernels::Measured(c.call, kernels::kCalls + (option == "--plant" ? 1 : 0));
  }
  return 0;
}
