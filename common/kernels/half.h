// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// IEEE half-precision numbers. Declarations only: files that are compiled for
// one instruction set include this (see kernels.h).
//
// Thread safety: any thread.
namespace specwire {

// The value of a half-precision number, exactly. The result is never a float32
// subnormal, so a thread that flushes those gets the same.
float HalfToFloat(uint16_t half);

// The half-precision number nearest to `value`, ties to even.
uint16_t FloatToHalf(float value);

}  // namespace specwire
