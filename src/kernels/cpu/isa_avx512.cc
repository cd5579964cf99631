// The kernels compiled for avx512. Only this file's flags allow its instructions, so nothing that another file could
// also instantiate (a library template, an inline function of a shared header) may be used below.
#define LS_ISA isa_avx512
#define LS_ISA_NAME "avx512"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/unroll.h"
//
#include "kernels/cpu/vec_avx512.h"
//
#include "kernels/cpu/dot_avx512.h"
#include "kernels/cpu/elementary-inl.h"
//
#include "kernels/cpu/matmul-inl.h"
#include "kernels/cpu/rows-inl.h"
//
#include "kernels/cpu/attention_kv-inl.h"
//
#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/table-inl.h"

namespace lockstep::kernels {
const CpuKernels& Avx512Kernels() {
  return isa_avx512::kTable;
}
}  // namespace lockstep::kernels
