// SPDX-License-Identifier: Apache-2.0
// What every x86-64 processor has, and plain code for the others.
#include "common/sampling/row_kernels.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace specwire {
namespace {

#if defined(__SSE2__)
using Words = __m128i;
constexpr int kWordLanes = 2;
constexpr int kVectors = 2;

inline Words Same(uint32_t word) { return _mm_set1_epi64x(word); }
inline Words Multiply(Words a, Words b) { return _mm_mul_epu32(a, b); }
inline Words HighHalf(Words a) { return _mm_srli_epi64(a, 32); }
inline Words Xor(Words a, Words b) { return _mm_xor_si128(a, b); }
inline Words LoadBlocks(const uint32_t* groups, int v) {
  return _mm_add_epi64(
      Same(4 * groups[v / 2]),
      v % 2 == 0 ? _mm_set_epi64x(1, 0) : _mm_set_epi64x(3, 2));
}
inline Words LoadLimits(const uint32_t* thresholds, int v) {
  return Same(thresholds[v / 2]);
}
// A difference is negative, its top bit set, where the word is below.
inline Words Minus(Words word, Words limit) {
  return _mm_sub_epi64(_mm_and_si128(word, Same(0xffffffffu)), limit);
}
inline uint64_t BelowMask(Words a, Words b, Words c, Words d, Words limit) {
  const Words all =
      _mm_and_si128(_mm_and_si128(Minus(a, limit), Minus(b, limit)),
                    _mm_and_si128(Minus(c, limit), Minus(d, limit)));
  return static_cast<uint64_t>(_mm_movemask_pd(_mm_castsi128_pd(all)));
}
#else
using Words = uint64_t;
constexpr int kWordLanes = 1;
constexpr int kVectors = 4;
constexpr uint64_t kLowHalf = 0xffffffffu;

inline Words Same(uint32_t word) { return word; }
inline Words Multiply(Words a, Words b) {
  return (a & kLowHalf) * (b & kLowHalf);
}
inline Words HighHalf(Words a) { return a >> 32; }
inline Words Xor(Words a, Words b) { return a ^ b; }
inline Words LoadBlocks(const uint32_t* groups, int v) {
  return 4 * groups[v / 4] + static_cast<uint32_t>(v % 4);
}
inline Words LoadLimits(const uint32_t* thresholds, int v) {
  return thresholds[v / 4];
}
inline uint64_t BelowMask(Words a, Words b, Words c, Words d, Words limit) {
  return (a & kLowHalf) < limit && (b & kLowHalf) < limit &&
         (c & kLowHalf) < limit && (d & kLowHalf) < limit;
}
#endif

#include "common/sampling/row_kernels.inc.h"

}  // namespace

const RowKernels kScalarRowKernels = {.sieve = Sieve, .weights = Weights};

}  // namespace specwire
