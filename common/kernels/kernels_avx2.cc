// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx2 -mfma -mf16c.
#include <immintrin.h>

#include "common/kernels/kernels.h"
#include "common/kernels/kernels_isa.h"

namespace specwire {
namespace {

struct Lanes {
  __m256 low;
  __m256 high;
};

inline Lanes Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes Load(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
inline void Store(float* to, Lanes x) {
  _mm256_storeu_ps(to, x.low);
  _mm256_storeu_ps(to + 8, x.high);
}
inline Lanes Add(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Lanes Sub(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Lanes Mul(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Lanes Div(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline Lanes Fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low),
          _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Lanes Max(Lanes a, Lanes b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline Lanes Min(Lanes a, Lanes b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
inline float SquareRoot(float x) {
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
}
inline Lanes RoundEven(Lanes x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.low, kMode), _mm256_round_ps(x.high, kMode)};
}
inline __m256 PowerOf(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(
      _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
inline Lanes PowerOfTwo(Lanes n) { return {PowerOf(n.low), PowerOf(n.high)}; }
inline Lanes ZeroWhereLess(Lanes value, Lanes x, Lanes bound) {
  return {
      _mm256_and_ps(value.low, _mm256_cmp_ps(x.low, bound.low, _CMP_NLT_UQ)),
      _mm256_and_ps(value.high,
                    _mm256_cmp_ps(x.high, bound.high, _CMP_NLT_UQ))};
}
inline float MaxLane(Lanes x) {
  const __m256 eight = _mm256_max_ps(x.low, x.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight),
                                 _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline uint32_t MaxAbsBits(Lanes a, Lanes b) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  const auto bits = [mask](__m256 x) {
    return _mm256_and_si256(_mm256_castps_si256(x), mask);
  };
  // Without the sign bit signed and unsigned order are the same.
  const __m256i eight =
      _mm256_max_epi32(_mm256_max_epi32(bits(a.low), bits(a.high)),
                       _mm256_max_epi32(bits(b.low), bits(b.high)));
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight),
                               _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(four));
}
inline int32_t StoreInt8(int8_t* to, Lanes x) {
  const __m256i low = _mm256_cvtps_epi32(x.low);
  const __m256i high = _mm256_cvtps_epi32(x.high);
  // Packing works in halves of 128 bits; put the quarters in order again.
  const __m256i words =
      _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_packs_epi16(_mm256_castsi256_si128(words),
                                   _mm256_extracti128_si256(words, 1)));
  const __m256i eight = _mm256_add_epi32(low, high);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight),
                               _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return _mm_cvtsi128_si32(four);
}
inline __m256 Load8Halves(const uint16_t* from) {
  return _mm256_cvtph_ps(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline Lanes LoadHalf(const uint16_t* from) {
  return {Load8Halves(from), Load8Halves(from + 8)};
}
inline void StoreHalf(uint16_t* to, Lanes x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8),
                   _mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT));
}

// More would not fit sixteen registers.
constexpr int kQueriesTogether = 1;

#include "common/kernels/lanes.inc.h"
// Behind the lanes.
#include "common/kernels/attend.inc.h"

// How far ahead of the multiplications weights are fetched. The processor's own
// prefetcher stops at the end of each page.
constexpr int kPrefetchBytes = 8192;

inline void Prefetch(const uint8_t* from) {
  _mm_prefetch(reinterpret_cast<const char*>(from) + kPrefetchBytes,
               _MM_HINT_T0);
}

inline __m256i Broadcast4(const int8_t* from) {
  int32_t four;
  __builtin_memcpy(&four, from, sizeof(four));
  return _mm256_set1_epi32(four);
}

inline __m256i Load32(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// The loops over a group's values stay loops: unrolled, they are scheduled for
// registers that there are not.

// Eight of a block's outputs: w and scales point at the first of them. Weights
// are made signed again, because the 16-bit sums of two products u8 * s8 would
// saturate; |w| <= 127 and |x| <= 127 fit.
template <int R, bool kFetch>
inline void HalfBlockInt8(const uint8_t* w,
                          const uint16_t* scales,
                          int64_t groups,
                          const QuantizedGroup* x,
                          __m256* out) {
  const __m256i sign_bits = _mm256_set1_epi8(-128);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int r = 0; r < R; ++r) out[r] = _mm256_setzero_ps();
  for (int64_t g = 0; g < groups; ++g) {
    __m256i sums[R];
    for (int r = 0; r < R; ++r) sums[r] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (int i = 0; i < 8; ++i) {
      if (kFetch) Prefetch(w);
      const __m256i weights = _mm256_xor_si256(Load32(w), sign_bits);
      const __m256i absolute = _mm256_abs_epi8(weights);
      w += 64;
      for (int r = 0; r < R; ++r) {
        const __m256i four = Broadcast4(x[r * groups + g].values + 4 * i);
        const __m256i pairs =
            _mm256_maddubs_epi16(absolute, _mm256_sign_epi8(four, weights));
        sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(pairs, ones));
      }
    }
    const __m256 scale = Load8Halves(scales + g * kBlockOutputs);
    for (int r = 0; r < R; ++r) {
      out[r] = _mm256_fmadd_ps(
          _mm256_cvtepi32_ps(sums[r]),
          _mm256_mul_ps(scale, _mm256_set1_ps(x[r * groups + g].scale)),
          out[r]);
    }
  }
}

// The sum of a group's products of 4 and 8 bits fits 16 bits: each lane adds 16
// of them, at most 16 * 15 * 127.
template <int R, bool kFetch>
inline void HalfBlockInt4(const uint8_t* w,
                          const uint16_t* scales,
                          int64_t groups,
                          const QuantizedGroup* x,
                          __m256* out) {
  const __m256i low_half = _mm256_set1_epi8(15);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int r = 0; r < R; ++r) out[r] = _mm256_setzero_ps();
  for (int64_t g = 0; g < groups; ++g) {
    __m256i sums[R];
    for (int r = 0; r < R; ++r) sums[r] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (int i = 0; i < 4; ++i) {
      if (kFetch) Prefetch(w);
      const __m256i bytes = Load32(w);
      w += 64;
      const __m256i low = _mm256_and_si256(bytes, low_half);
      const __m256i high =
          _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low_half);
      for (int r = 0; r < R; ++r) {
        const int8_t* const four = x[r * groups + g].values + 4 * i;
        const __m256i pairs =
            _mm256_add_epi16(_mm256_maddubs_epi16(low, Broadcast4(four)),
                             _mm256_maddubs_epi16(high, Broadcast4(four + 16)));
        sums[r] = _mm256_add_epi16(sums[r], pairs);
      }
    }
    const __m256 scale = Load8Halves(scales + g * 2 * kBlockOutputs);
    const __m256 minimum =
        Load8Halves(scales + g * 2 * kBlockOutputs + kBlockOutputs);
    for (int r = 0; r < R; ++r) {
      out[r] = _mm256_fmadd_ps(
          _mm256_cvtepi32_ps(_mm256_madd_epi16(sums[r], ones)),
          _mm256_mul_ps(scale, _mm256_set1_ps(x[r * groups + g].scale)),
          out[r]);
      out[r] = _mm256_fmadd_ps(
          minimum, _mm256_set1_ps(x[r * groups + g].scaled_sum), out[r]);
    }
  }
}

template <int R, bool kFetch>
void BlockRows(const LinearArgs& args, int64_t block, int first_row) {
  const int64_t groups = args.x.groups;
  const QuantizedGroup* const x = args.x.rows + first_row * groups;
  const int64_t first = block * kBlockOutputs;
  const int64_t left = args.matrix.outputs - first;
  __m256 out[2][R];
  for (int half = 0; half < 2; ++half) {
    if (args.matrix.form == WeightForm::kInt8) {
      HalfBlockInt8<R, kFetch>(
          args.matrix.weights + block * groups * kBlockOutputs * kGroupSize +
              half * 32,
          args.matrix.scales + block * groups * kBlockOutputs + half * 8,
          groups,
          x,
          out[half]);
    } else {
      HalfBlockInt4<R, kFetch>(
          args.matrix.weights +
              block * groups * kBlockOutputs * kGroupSize / 2 + half * 32,
          args.matrix.scales + block * groups * 2 * kBlockOutputs + half * 8,
          groups,
          x,
          out[half]);
    }
  }
  for (int r = 0; r < R; ++r) {
    float* const y = args.y + (first_row + r) * args.y_stride + first;
    const Lanes product = {out[0][r], out[1][r]};
    StoreFirst(y, args.add ? Add(LoadFirst(y, left), product) : product, left);
  }
}

// Rows whose sums fit the registers.
constexpr int kRowsTogether = 4;

#include "common/kernels/linear.inc.h"

}  // namespace

const Kernels kAvx2Kernels = {Isa::kAvx2,
                              Quantize,
                              RmsNormQuantize,
                              GateQuantize,
                              GeluGateQuantize,
                              RmsNorm,
                              Linear,
                              Rotate,
                              StoreKv,
                              Attend,
                              AttendChunk,
                              AttendFold,
                              MaxOf,
                              ArgMax,
                              ExpAll};

}  // namespace specwire
