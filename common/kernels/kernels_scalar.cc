// SPDX-License-Identifier: Apache-2.0
// The kernels for any processor, and what the others are held to.
#include "common/kernels/half.h"
#include "common/kernels/kernels.h"
#include "common/kernels/kernels_isa.h"

namespace specwire {
namespace {

struct Lanes {
  float lane[16];
};

#define SPECWIRE_FOR_LANES(expression)                 \
  Lanes r;                                             \
  for (int i = 0; i < 16; ++i) r.lane[i] = expression; \
  return r

inline Lanes Set(float x) { SPECWIRE_FOR_LANES(x); }
inline Lanes Load(const float* from) { SPECWIRE_FOR_LANES(from[i]); }
inline void Store(float* to, Lanes x) {
  for (int i = 0; i < 16; ++i) to[i] = x.lane[i];
}
inline Lanes Add(Lanes a, Lanes b) {
  SPECWIRE_FOR_LANES(a.lane[i] + b.lane[i]);
}
inline Lanes Sub(Lanes a, Lanes b) {
  SPECWIRE_FOR_LANES(a.lane[i] - b.lane[i]);
}
inline Lanes Mul(Lanes a, Lanes b) {
  SPECWIRE_FOR_LANES(a.lane[i] * b.lane[i]);
}
inline Lanes Div(Lanes a, Lanes b) {
  SPECWIRE_FOR_LANES(a.lane[i] / b.lane[i]);
}
// a b + c, rounded once.
inline Lanes Fma(Lanes a, Lanes b, Lanes c) {
  SPECWIRE_FOR_LANES(__builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]));
}
// The second operand where one is not a number, or both are zero.
inline Lanes Max(Lanes a, Lanes b) {
  SPECWIRE_FOR_LANES(a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]);
}
inline Lanes Min(Lanes a, Lanes b) {
  SPECWIRE_FOR_LANES(a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]);
}
inline float SquareRoot(float x) { return __builtin_sqrtf(x); }

// To the nearest integer, ties to even; for |x| < 2^22.
inline float NearestEven(float x) {
  // Volatile: no optimisation may add the constants up.
  volatile float shifted = x + 0x1.8p+23f;
  return shifted - 0x1.8p+23f;
}
inline Lanes RoundEven(Lanes x) { SPECWIRE_FOR_LANES(NearestEven(x.lane[i])); }

inline float FloatOf(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}
inline uint32_t BitsOf(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// 2^n for whole n in [-126, 127]; anything if n is not a number.
inline float PowerOf(float n) {
  const int32_t exponent = n == n ? static_cast<int32_t>(n) + 127 : 127;
  return FloatOf(static_cast<uint32_t>(exponent) << 23);
}
inline Lanes PowerOfTwo(Lanes n) { SPECWIRE_FOR_LANES(PowerOf(n.lane[i])); }
inline Lanes ZeroWhereLess(Lanes value, Lanes x, Lanes bound) {
  SPECWIRE_FOR_LANES(x.lane[i] < bound.lane[i] ? 0.0f : value.lane[i]);
}
inline float MaxLane(Lanes x) {
  float largest = x.lane[0];
  for (int i = 1; i < 16; ++i) {
    if (x.lane[i] > largest) largest = x.lane[i];
  }
  return largest;
}
// The largest of the absolute values' bits.
inline uint32_t MaxAbsBits(Lanes a, Lanes b) {
  uint32_t largest = 0;
  for (int i = 0; i < 16; ++i) {
    const uint32_t of_a = BitsOf(a.lane[i]) & 0x7fffffffu;
    const uint32_t of_b = BitsOf(b.lane[i]) & 0x7fffffffu;
    if (of_a > largest) largest = of_a;
    if (of_b > largest) largest = of_b;
  }
  return largest;
}
// Stores values of at most 127 as integers, nearest even; returns their sum.
inline int32_t StoreInt8(int8_t* to, Lanes x) {
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) {
    const int32_t value = static_cast<int32_t>(NearestEven(x.lane[i]));
    to[i] = static_cast<int8_t>(value);
    sum += value;
  }
  return sum;
}

inline Lanes LoadHalf(const uint16_t* from) {
  SPECWIRE_FOR_LANES(HalfToFloat(from[i]));
}
inline void StoreHalf(uint16_t* to, Lanes x) {
  for (int i = 0; i < 16; ++i) to[i] = FloatToHalf(x.lane[i]);
}

// Queries that Attend computes at once.
constexpr int kQueriesTogether = 1;

#include "common/kernels/lanes.inc.h"
// Behind the lanes.
#include "common/kernels/attend.inc.h"

// One block of outputs for one row.
void BlockInt8(const LinearArgs& args, int64_t block, int row, float* out) {
  const QuantizedRows& x = args.x;
  for (int o = 0; o < kBlockOutputs; ++o) out[o] = 0.0f;
  for (int64_t g = 0; g < x.groups; ++g) {
    const QuantizedGroup& from = x.rows[row * x.groups + g];
    const int8_t* const values = from.values;
    const int64_t group = block * x.groups + g;
    const uint8_t* const w =
        args.matrix.weights + group * kBlockOutputs * kGroupSize;
    for (int o = 0; o < kBlockOutputs; ++o) {
      int32_t sum = from.offset;
      for (int i = 0; i < kGroupSize; ++i) {
        sum += int32_t{w[(i / 4 * kBlockOutputs + o) * 4 + i % 4]} * values[i];
      }
      const float scale =
          HalfToFloat(args.matrix.scales[group * kBlockOutputs + o]);
      out[o] =
          __builtin_fmaf(static_cast<float>(sum), scale * from.scale, out[o]);
    }
  }
}

void BlockInt4(const LinearArgs& args, int64_t block, int row, float* out) {
  const QuantizedRows& x = args.x;
  for (int o = 0; o < kBlockOutputs; ++o) out[o] = 0.0f;
  for (int64_t g = 0; g < x.groups; ++g) {
    const QuantizedGroup& from = x.rows[row * x.groups + g];
    const int8_t* const values = from.values;
    const int64_t group = block * x.groups + g;
    const uint8_t* const w =
        args.matrix.weights + group * kBlockOutputs * kGroupSize / 2;
    const uint16_t* const scales =
        args.matrix.scales + group * 2 * kBlockOutputs;
    for (int o = 0; o < kBlockOutputs; ++o) {
      int32_t sum = 0;
      for (int i = 0; i < kGroupSize / 2; ++i) {
        const uint8_t byte = w[(i / 4 * kBlockOutputs + o) * 4 + i % 4];
        sum += (byte & 15) * values[i] + (byte >> 4) * values[i + 16];
      }
      out[o] = __builtin_fmaf(
          static_cast<float>(sum), HalfToFloat(scales[o]) * from.scale, out[o]);
      out[o] = __builtin_fmaf(
          HalfToFloat(scales[kBlockOutputs + o]), from.scaled_sum, out[o]);
    }
  }
}

void Linear(const LinearArgs& args, int64_t first_block, int64_t end_block) {
  for (int64_t block = first_block; block < end_block; ++block) {
    const int64_t first = block * kBlockOutputs;
    const int64_t left = args.matrix.outputs - first;
    for (int row = 0; row < args.rows; ++row) {
      float out[kBlockOutputs];
      if (args.matrix.form == WeightForm::kInt8) {
        BlockInt8(args, block, row, out);
      } else {
        BlockInt4(args, block, row, out);
      }
      float* const y = args.y + row * args.y_stride + first;
      for (int o = 0; o < (left < kBlockOutputs ? left : kBlockOutputs); ++o) {
        y[o] = args.add ? y[o] + out[o] : out[o];
      }
    }
  }
}

}  // namespace

const Kernels kScalarKernels = {Isa::kScalar,
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
