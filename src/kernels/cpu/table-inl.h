// The last part of an instruction set's translation unit: its kernels as a table.
#pragma once

namespace lockstep::kernels::LS_ISA {

inline constexpr CpuKernels kTable = {
    .name = LS_ISA_NAME,
    .matmul = Matmul,
    .add_norm = AddNorm,
    .quantise_row = QuantiseRow,
    .add_bias = AddBias,
    .silu_mul = SiluMul,
    .rope = Rope,
    .store_kv = StoreKv,
    .attention = Attention,
    .merge_attention = MergeAttention,
    .argmax = Argmax,
    .exp = ExpRow,
    .log = LogRow,
};

}  // namespace lockstep::kernels::LS_ISA
