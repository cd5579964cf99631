// The kernels compiled for generic. Only this file's flags allow its instructions, so nothing that another file could
// also instantiate (a library template, an inline function of a shared header) may be used below.
#define LS_ISA isa_generic
#define LS_ISA_NAME "generic"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/unroll.h"
//
#include "kernels/cpu/vec_generic.h"
//
#include "kernels/cpu/dot_generic.h"
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
const CpuKernels& GenericKernels() {
  return isa_generic::kTable;
}
}  // namespace lockstep::kernels
