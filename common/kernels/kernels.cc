// SPDX-License-Identifier: Apache-2.0
#include "common/kernels/kernels.h"

#include "common/kernels/kernels_isa.h"

namespace specwire {

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512Vnni:
      return "avx512vnni";
  }
  return "unknown";
}

int64_t AttendScratch(int first_position, int rows, int heads, int head_dim) {
  const int64_t chunks =
      (int64_t{first_position} + rows + kAttendChunk - 1) / kAttendChunk;
  const int64_t padded_dim = (int64_t{head_dim} + 15) / 16 * 16;
  return int64_t{rows} * heads * chunks * (kAttendChunk + padded_dim + 16);
}

const Kernels* KernelsFor(Isa isa) {
#if defined(__x86_64__)
  // The half-precision conversions came with every processor that has AVX2,
  // but the compiler may use each of them only if it is asked for by name.
  const bool avx2 = __builtin_cpu_supports("avx2") &&
                    __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  switch (isa) {
    case Isa::kAvx512Vnni:
      return avx2 && __builtin_cpu_supports("avx512f") &&
                     __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") &&
                     __builtin_cpu_supports("avx512dq") &&
                     __builtin_cpu_supports("avx512vnni")
                 ? &kAvx512VnniKernels
                 : nullptr;
    case Isa::kAvx2:
      return avx2 ? &kAvx2Kernels : nullptr;
    case Isa::kScalar:
      break;
  }
#endif
  return isa == Isa::kScalar ? &kScalarKernels : nullptr;
}

const Kernels& BestKernels() {
  if (const Kernels* kernels = KernelsFor(Isa::kAvx512Vnni)) return *kernels;
  if (const Kernels* kernels = KernelsFor(Isa::kAvx2)) return *kernels;
  return kScalarKernels;
}

}  // namespace specwire
