#include "kernels/ref/elementary64.h"

#include <cmath>

namespace lockstep::kernels::ref {
namespace {
constexpr double kLn2 = 0x1.62e42fefa39efp-1;
// pi/2 in three parts of 33 bits, 33 bits and the rest: k * part is exact for |k| < 2^20.
constexpr double kPio2A = 0x1.921fb544p+0;
constexpr double kPio2B = 0x1.0b4611a6p-34;
constexpr double kPio2C = 0x1.3198a2e037073p-69;
}  // namespace

double Log64(double x) {
  int e;
  double m = std::frexp(x, &e);  // [1/2, 1): exact
  if (m < 0x1.6a09e667f3bcdp-1) {
    m *= 2;
    --e;
  }
  double s = (m - 1) / (m + 1), z = s * s, term = s, sum = 0;
  for (int n = 1; n < 40; n += 2) {
    sum += term / n;
    term *= z;
  }
  return e * kLn2 + 2 * sum;
}

double Exp64(double x) {
  double n = std::nearbyint(x / kLn2), r = x - n * kLn2, term = 1, sum = 1;
  for (int i = 1; i < 22; ++i) {
    term *= r / i;
    sum += term;
  }
  return std::ldexp(sum, static_cast<int>(n));
}

void SinCos64(double x, double* sin, double* cos) {
  double k = std::nearbyint(x / 1.5707963267948966);
  double r = ((x - k * kPio2A) - k * kPio2B) - k * kPio2C;
  double z = r * r, term_sin = r, term_cos = 1, s = 0, c = 0;
  for (int i = 0; i < 11; ++i) {
    s += term_sin;
    c += term_cos;
    term_sin *= -z / ((2 * i + 2) * (2 * i + 3));
    term_cos *= -z / ((2 * i + 1) * (2 * i + 2));
  }
  switch (static_cast<long long>(k) & 3) {
    case 0:
      *sin = s, *cos = c;
      break;
    case 1:
      *sin = c, *cos = -s;
      break;
    case 2:
      *sin = -s, *cos = -c;
      break;
    default:
      *sin = -c, *cos = s;
      break;
  }
}

}  // namespace lockstep::kernels::ref
