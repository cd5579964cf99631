// The AMX kernels with their tiles in plain memory: what runs on AMX is tested on every machine with AVX-512.
#define LS_ISA isa_amx_emulated
#define LS_TILES
#define LS_TILES_EMULATED
#define LS_ISA_NAME "amx_emulated"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/unroll.h"
//
#include "kernels/cpu/vec_avx512.h"
//
#include "kernels/cpu/dot_avx512.h"
#include "kernels/cpu/elementary-inl.h"
//
#include "kernels/cpu/matmul-inl.h"
#include "kernels/cpu/tiles_amx.h"
//
#include "kernels/cpu/matmul_tiles-inl.h"
#include "kernels/cpu/rows-inl.h"
//
#include "kernels/cpu/attention_kv-inl.h"
//
#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/table-inl.h"

namespace lockstep::kernels {
const CpuKernels& AmxEmulatedKernels() {
  return isa_amx_emulated::kTable;
}
}  // namespace lockstep::kernels
