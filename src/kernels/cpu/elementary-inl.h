// exp and log on sixteen lanes: the polynomials of kernels/ref/elementary.h, operation for operation.
//
// Shapes:  lane by lane
// Capture: pure functions
// Source:  ref/elementary.h gives the derivation and the error
#pragma once

namespace lockstep::kernels::LS_ISA {

inline F32x16 Exp(F32x16 x) {
  const F32x16 magic = Set(12582912.0f);
  F32x16 shifted = Fma(x, Set(0x1.715476p+0f), magic);
  F32x16 n = Sub(shifted, magic);
  F32x16 r = Fma(n, Set(-0x1.62e400p-1f), x);
  r = Fma(n, Set(-0x1.7f7d1cp-20f), r);
  F32x16 p = Set(1.0f / 5040);
  p = Fma(p, r, Set(1.0f / 720));
  p = Fma(p, r, Set(1.0f / 120));
  p = Fma(p, r, Set(1.0f / 24));
  p = Fma(p, r, Set(1.0f / 6));
  p = Fma(p, r, Set(0.5f));
  p = Fma(p, r, Set(1.0f));
  p = Fma(p, r, Set(1.0f));
  I32x16 scale = ShiftLeft<23>(AddI(SubI(Bits(shifted), SetI(0x4B400000)), SetI(127)));
  F32x16 y = Mul(p, FromBits(scale));
  y = SelectLess(x, -87.0f, Set(0.0f), y);
  return SelectGreater(x, 88.0f, Set(__builtin_inff()), y);
}

// x > 0 and normal.
inline F32x16 Log(F32x16 x) {
  I32x16 bits = AddI(Bits(x), SetI(0x3f800000 - 0x3f3504f3));
  I32x16 e = SubI(ShiftRight<23>(bits), SetI(127));
  F32x16 m = FromBits(AddI(AndI(bits, SetI(0x007fffff)), SetI(0x3f3504f3)));
  F32x16 f = Sub(m, Set(1.0f));
  F32x16 s = Div(f, Add(Set(2.0f), f));
  F32x16 z = Mul(s, s);
  F32x16 p = Set(1.0f / 11);
  p = Fma(p, z, Set(1.0f / 9));
  p = Fma(p, z, Set(1.0f / 7));
  p = Fma(p, z, Set(1.0f / 5));
  p = Fma(p, z, Set(1.0f / 3));
  p = Mul(p, z);
  F32x16 s2 = Add(s, s);
  F32x16 y = Fma(s2, p, s2);
  F32x16 ef = ToF32(e);
  y = Fma(ef, Set(0x1.7f7d1cp-20f), y);
  return Fma(ef, Set(0x1.62e400p-1f), y);
}

}  // namespace lockstep::kernels::LS_ISA
