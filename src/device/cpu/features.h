// Which vector instructions this CPU has and the system lets us use, and which of our kernel sets runs on it.
//
// Errors:  kInvalidArgument  an instruction set that does not exist
//          kUnsupported      one that this machine does not have
// Threads: any
// Source:  CPUID leaves 1, 7.0, 7.1, 80000002h-4h; XGETBV(0): the system must save the registers, or they are lost
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep::device::cpu {

struct CpuFeatures {
  std::string model_name;  // "AMD EPYC 9654 96-Core Processor"; empty if the CPU does not say
  bool avx2 = false, fma = false, f16c = false;
  bool avx512f = false, avx512bw = false, avx512vl = false, avx512dq = false, avx512_vnni = false;
  bool avx_vnni = false;
  bool amx_int8 = false;  // with the permission to use tiles, which Features() asks the system for

  std::string ToString() const;  // "avx2 fma f16c avx512f"
};

// Read once. The permission holds for all threads of the process and for its children.
const CpuFeatures& Features();

// Our kernel sets, narrowest first. All give the same bits.
enum class CpuIsa {
  kGeneric,  // plain C++ and the baseline of the build
  kAvx2,     // avx2, fma, f16c
  kAvx512,   // avx512 f, bw, vl, dq, vnni, and all of kAvx2
  kAmx,      // kAvx512 with amx int8 tiles for many rows
};
const char* CpuIsaName(CpuIsa isa);  // "avx2"

bool Supports(const CpuFeatures& features, CpuIsa isa);
CpuIsa BestIsa(const CpuFeatures& features);

// "generic", "avx2", "avx512", "amx"; the empty text is the best one.
Result<CpuIsa> ParseIsa(const std::string& text, const CpuFeatures& features = Features());

}  // namespace lockstep::device::cpu
