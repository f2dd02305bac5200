// SPDX-License-Identifier: Apache-2.0
#include "common/model/float_control.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace specwire {

void SetFloatControl() {
#if defined(__x86_64__)
  // All exceptions masked; every other bit is clear.
  constexpr unsigned kDefault = _MM_MASK_MASK;
  _mm_setcsr(kDefault);
#else
  // The C library's default is the IEEE one, flushing to zero included.
  std::fesetenv(FE_DFL_ENV);
#endif
}

}  // namespace specwire
