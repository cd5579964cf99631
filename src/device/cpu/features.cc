#include "device/cpu/features.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace lockstep::device::cpu {
namespace {

#if defined(__x86_64__)

struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf CpuId(unsigned leaf, unsigned subleaf) {
  Leaf r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

bool Bit(unsigned word, int bit) {
  return (word >> bit) & 1;
}

// Which register sets the system saves on a context switch.
uint64_t SavedState() {
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// Tiles make a thread's saved state 8 KiB larger, so Linux (5.16) wants a process to ask once; older ones do not know it.
bool RequestTiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::string ModelName() {
  if (CpuId(0x80000000u, 0).eax < 0x80000004u) return "";
  char name[49] = {};
  for (unsigned i = 0; i < 3; ++i) {
    const Leaf leaf = CpuId(0x80000002u + i, 0);
    std::memcpy(name + 16 * i, &leaf, 16);
  }
  std::string text(name);
  const size_t begin = text.find_first_not_of(' ');
  const size_t end = text.find_last_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

CpuFeatures Detect() {
  CpuFeatures f;
  f.model_name = ModelName();
  const Leaf one = CpuId(1, 0);
  constexpr int kOsxsaveBit = 27;
  if (!Bit(one.ecx, kOsxsaveBit)) return f;  // xgetbv itself would fault
  const uint64_t saved = SavedState();
  constexpr uint64_t kYmm = 0x6;          // xmm, ymm
  constexpr uint64_t kZmm = kYmm | 0xe0;  // and opmask, zmm 0-15 upper halves, zmm 16-31
  constexpr uint64_t kTiles = 0x60000;    // tile configuration and data
  const Leaf seven = CpuId(7, 0);
  const Leaf seven_one = seven.eax >= 1 ? CpuId(7, 1) : Leaf{};
  if ((saved & kYmm) == kYmm) {
    f.fma = Bit(one.ecx, 12);
    f.f16c = Bit(one.ecx, 29);
    f.avx2 = Bit(seven.ebx, 5);
    f.avx_vnni = Bit(seven_one.eax, 4);
  }
  if ((saved & kZmm) == kZmm) {
    f.avx512f = Bit(seven.ebx, 16);
    f.avx512dq = Bit(seven.ebx, 17);
    f.avx512bw = Bit(seven.ebx, 30);
    f.avx512vl = Bit(seven.ebx, 31);
    f.avx512_vnni = Bit(seven.ecx, 11);
  }
  if ((saved & kTiles) == kTiles) f.amx_int8 = Bit(seven.edx, 24) && Bit(seven.edx, 25) && RequestTiles();
  return f;
}

#else

CpuFeatures Detect() {
  return {};
}

#endif

}  // namespace

std::string CpuFeatures::ToString() const {
  std::string text;
  auto add = [&](bool has, const char* name) {
    if (!has) return;
    if (!text.empty()) text += ' ';
    text += name;
  };
  add(avx2, "avx2");
  add(fma, "fma");
  add(f16c, "f16c");
  add(avx512f, "avx512f");
  add(avx512bw, "avx512bw");
  add(avx512vl, "avx512vl");
  add(avx512dq, "avx512dq");
  add(avx512_vnni, "avx512_vnni");
  add(avx_vnni, "avx_vnni");
  add(amx_int8, "amx_int8");
  return text;
}

const CpuFeatures& Features() {
  static const CpuFeatures features = Detect();
  return features;
}

const char* CpuIsaName(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kGeneric:
      return "generic";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvxVnni:
      return "avx_vnni";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAmx:
      return "amx";
  }
  return "?";
}

bool Supports(const CpuFeatures& f, CpuIsa isa) {
  const bool avx2 = f.avx2 && f.fma && f.f16c;
  const bool avx512 = avx2 && f.avx512f && f.avx512bw && f.avx512vl && f.avx512dq && f.avx512_vnni;
  switch (isa) {
    case CpuIsa::kGeneric:
      return true;
    case CpuIsa::kAvx2:
      return avx2;
    case CpuIsa::kAvxVnni:
      return avx2 && f.avx_vnni;
    case CpuIsa::kAvx512:
      return avx512;
    case CpuIsa::kAmx:
      return avx512 && f.amx_int8;
  }
  return false;
}

CpuIsa BestIsa(const CpuFeatures& features) {
  if (Supports(features, CpuIsa::kAmx)) return CpuIsa::kAmx;
  if (Supports(features, CpuIsa::kAvx512)) return CpuIsa::kAvx512;
  if (Supports(features, CpuIsa::kAvxVnni)) return CpuIsa::kAvxVnni;
  if (Supports(features, CpuIsa::kAvx2)) return CpuIsa::kAvx2;
  return CpuIsa::kGeneric;
}

Result<CpuIsa> ParseIsa(const std::string& text, const CpuFeatures& features) {
  if (text.empty()) return BestIsa(features);
  for (CpuIsa isa : {CpuIsa::kGeneric, CpuIsa::kAvx2, CpuIsa::kAvxVnni, CpuIsa::kAvx512, CpuIsa::kAmx}) {
    if (text != CpuIsaName(isa)) continue;
    if (Supports(features, isa)) return isa;
    return InvalidArgument(fmt::format("instruction set \"{}\": this machine lacks it; it has {}", text,
                                       features.ToString().empty() ? "generic only" : features.ToString()));
  }
  return InvalidArgument(
      fmt::format("instruction set \"{}\": generic, avx2, avx_vnni, avx512 or amx; this machine's best is {}", text,
                  CpuIsaName(BestIsa(features))));
}

}  // namespace lockstep::device::cpu
