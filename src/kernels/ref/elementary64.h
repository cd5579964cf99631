// log, exp, sin and cos in double from additions, multiplications and divisions only: for tables made once (rope), so
// that they do not depend on the system's mathematics library.
//
// Shapes:  one value
// Capture: pure functions; used in Prepare
// Order:   the operations as written, no contraction
// Source:  Taylor and atanh series, summed until the terms fall below 2^-60 of the value on the reduced range
// Accuracy: about 1e-15 relative for log and exp, 1e-15 absolute for sin and cos up to |x| = 2^20
#pragma once

namespace lockstep::kernels::ref {

// x > 0, normal.
double Log64(double x);
// |x| <= 700.
double Exp64(double x);
// |x| <= 2^20.
void SinCos64(double x, double* sin, double* cos);

}  // namespace lockstep::kernels::ref
