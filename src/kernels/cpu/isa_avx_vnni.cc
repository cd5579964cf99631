// The kernels compiled for avx2 with avx_vnni. Only this file's flags allow its instructions, so nothing that another file could also
// instantiate (a library template, an inline function of a shared header) may be used below.
#define LS_ISA isa_avx_vnni
#define LS_AVX_VNNI
#define LS_ISA_NAME "avx_vnni"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/unroll.h"
//
#include "kernels/cpu/vec_avx2.h"
//
#include "kernels/cpu/dot_avx2.h"
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
const CpuKernels& AvxVnniKernels() {
  return isa_avx_vnni::kTable;
}
}  // namespace lockstep::kernels
