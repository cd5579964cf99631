// The kernels compiled for avx512, with AMX tiles for many rows. Only this file's flags allow its instructions, so
// nothing that another file could also instantiate (a library template, an inline function of a shared header) may be
// used below. The tile instructions are in asm statements and need no flag.
#define LS_ISA isa_amx
#define LS_TILES
#define LS_ISA_NAME "amx"

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
const CpuKernels& AmxKernels() {
  return isa_amx::kTable;
}
}  // namespace lockstep::kernels
