// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace specwire {

// Elementary functions whose bits are ours: only IEEE additions,
// multiplications, divisions and exact scalings, in one fixed order, compiled
// without contraction. A C library's own functions differ between releases and
// processors, and a token must not. Error against the true value: at most 2
// units in the last place.
//
// Thread safety: any thread.

// e^x. 0 below -745.2, infinity above 709.79; NaN stays NaN. Results below the
// smallest normal number may be off by one of its last places.
double Exp(double x);

// Natural logarithm. -infinity at 0, NaN below.
double Log(double x);

// Sine and cosine of x radians, |x| <= 1,600,000.
void SinCos(double x, double* sin, double* cos);

}  // namespace specwire
