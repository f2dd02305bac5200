// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// What the kernels' files share with each other. Declarations only, for the
// reason that kernels.h gives.
namespace specwire {

struct Kernels;

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512VnniKernels;

}  // namespace specwire
