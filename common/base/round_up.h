// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace specwire {

// The least multiple that is not below `value`.
// REQUIRES: value >= 0, multiple > 0; the result fits.
constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace specwire
