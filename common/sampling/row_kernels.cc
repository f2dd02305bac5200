// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/row_kernels.h"

#include "common/kernels/kernels.h"

namespace specwire {

const RowKernels& BestRowKernels() {
#if defined(__x86_64__)
  switch (BestKernels().isa) {
    case Isa::kAvx512Vnni:
      return kAvx512RowKernels;
    case Isa::kAvx2:
      return kAvx2RowKernels;
    case Isa::kScalar:
      break;
  }
#endif
  return kScalarRowKernels;
}

}  // namespace specwire
