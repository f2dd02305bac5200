// SPDX-License-Identifier: Apache-2.0
// No #pragma once: each instruction set's file includes this once, inside an
// unnamed namespace, after it has defined Lanes and its operations.
//
// All that is computed in 16 float lanes, written once. A dot product or a sum
// over n values gives lane i the elements i, i + 16, ... by fused multiply-add
// in ascending order, and folds the lanes 8, 4, 2, 1. Nothing here may call an
// inline or template function of a library: see kernels.h.

constexpr int kLanes = 16;

// What the quantised value 127 stands for must be larger than this; smaller
// groups are all zero.
constexpr float kLeastAbsMax = 0x1p-100f;
constexpr uint32_t kInfinityBits = 0x7f800000u;

inline float BitsToFloat(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t FloatToBits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline int64_t RoundUp16(int64_t n) { return (n + 15) / 16 * 16; }

// The first `n` lanes from memory, zeros behind them.
inline Lanes LoadFirst(const float* from, int64_t n) {
  if (n >= kLanes) return Load(from);
  float padded[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) padded[i] = from[i];
  return Load(padded);
}

inline void StoreFirst(float* to, Lanes value, int64_t n) {
  if (n >= kLanes) return Store(to, value);
  float padded[kLanes];
  Store(padded, value);
  for (int64_t i = 0; i < n; ++i) to[i] = padded[i];
}

inline float Fold(Lanes value) {
  float lanes[kLanes];
  Store(lanes, value);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  }
  return lanes[0];
}

// e^x: x = n ln 2 + r, Taylor series of e^r to r^7 (next term below 2^-27).
// 0 below -87, e^88 above 88.
inline Lanes Exp(Lanes x) {
  // In this order of operands what is not a number stays none.
  const Lanes bounded = Min(Set(88.0f), Max(Set(-87.0f), x));
  const Lanes n = RoundEven(Mul(bounded, Set(0x1.715476p+0f)));
  // ln 2 in two parts; the first has so few bits that n times it is exact.
  Lanes r = Fma(n, Set(-0x1.62e4p-1f), bounded);
  r = Fma(n, Set(-0x1.7f7d1cp-20f), r);
  Lanes p = Set(1.0f / 5040.0f);
  p = Fma(p, r, Set(1.0f / 720.0f));
  p = Fma(p, r, Set(1.0f / 120.0f));
  p = Fma(p, r, Set(1.0f / 24.0f));
  p = Fma(p, r, Set(1.0f / 6.0f));
  p = Fma(p, r, Set(0.5f));
  p = Fma(p, r, Set(1.0f));
  p = Fma(p, r, Set(1.0f));
  return ZeroWhereLess(Mul(p, PowerOfTwo(n)), x, Set(-87.0f));
}

void ExpAll(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    StoreFirst(out + i, Exp(LoadFirst(x + i, n - i)), n - i);
  }
}

// One group of 32 values.
inline void QuantizeGroup(Lanes low,
                          Lanes high,
                          const QuantizedRows& out,
                          int64_t row,
                          int64_t group) {
  QuantizedGroup& to = out.rows[row * out.groups + group];
  // Bits of absolute values order as the values do, with NaN on top.
  const uint32_t bits = MaxAbsBits(low, high);
  const float abs_max = BitsToFloat(bits);
  if (bits >= kInfinityBits || abs_max < kLeastAbsMax) {
    for (int i = 0; i < kGroupSize; ++i) to.values[i] = 0;
    to.offset = 0;
    // What is not a number stays none: 0 * NaN.
    to.scale = bits >= kInfinityBits ? BitsToFloat(0x7fc00000u) : 0.0f;
    to.scaled_sum = to.scale;
    return;
  }
  const float scale = abs_max / 127.0f;
  const Lanes divisor = Set(scale);
  const int32_t sum = StoreInt8(to.values, Div(low, divisor)) +
                      StoreInt8(to.values + kLanes, Div(high, divisor));
  to.scale = scale;
  to.offset = -128 * sum;
  to.scaled_sum = static_cast<float>(sum) * scale;
}

void Quantize(const float* x,
              int64_t n,
              const QuantizedRows& out,
              int64_t row) {
  for (int64_t g = 0; g < out.groups; ++g) {
    const int64_t i = g * kGroupSize;
    QuantizeGroup(LoadFirst(x + i, n - i),
                  LoadFirst(x + i + kLanes, n - i - kLanes),
                  out,
                  row,
                  g);
  }
}

// 1 / sqrt(mean(x^2) + eps).
inline float InverseRms(const float* x, int64_t n, float eps) {
  Lanes squares = Set(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes v = LoadFirst(x + i, n - i);
    squares = Fma(v, v, squares);
  }
  const float mean = Fold(squares) / static_cast<float>(n);
  return 1.0f / SquareRoot(mean + eps);
}

void RmsNorm(
    const float* x, const float* norm, int64_t n, float eps, float* y) {
  const Lanes scale = Set(InverseRms(x, n, eps));
  for (int64_t i = 0; i < n; i += kLanes) {
    StoreFirst(
        y + i,
        Mul(Mul(LoadFirst(x + i, n - i), scale), LoadFirst(norm + i, n - i)),
        n - i);
  }
}

void RmsNormQuantize(const float* x,
                     const float* norm,
                     int64_t n,
                     float eps,
                     const QuantizedRows& out,
                     int64_t row) {
  const Lanes scale = Set(InverseRms(x, n, eps));
  const auto normed = [&](int64_t i) {
    return Mul(Mul(LoadFirst(x + i, n - i), scale), LoadFirst(norm + i, n - i));
  };
  for (int64_t g = 0; g < out.groups; ++g) {
    const int64_t i = g * kGroupSize;
    QuantizeGroup(normed(i), normed(i + kLanes), out, row, g);
  }
}

// g / (1 + exp(exponent(g))) * u, quantised.
template <typename Exponent>
inline void GateQuantizeWith(const Exponent& exponent,
                             const float* gate_up,
                             int64_t n,
                             const QuantizedRows& out,
                             int64_t row) {
  const Lanes one = Set(1.0f);
  const auto gated = [&](int64_t i) {
    const Lanes gate = LoadFirst(gate_up + i, n - i);
    const Lanes up = LoadFirst(gate_up + n + i, n - i);
    return Mul(Div(gate, Add(one, Exp(exponent(gate)))), up);
  };
  for (int64_t g = 0; g < out.groups; ++g) {
    const int64_t i = g * kGroupSize;
    QuantizeGroup(gated(i), gated(i + kLanes), out, row, g);
  }
}

void GateQuantize(const float* gate_up,
                  int64_t n,
                  const QuantizedRows& out,
                  int64_t row) {
  GateQuantizeWith(
      [](Lanes gate) { return Sub(Set(0.0f), gate); }, gate_up, n, out, row);
}

void GeluGateQuantize(const float* gate_up,
                      int64_t n,
                      const QuantizedRows& out,
                      int64_t row) {
  // -2 sqrt(2 / pi), and 0.044715 times that.
  const auto exponent = [](Lanes gate) {
    const Lanes factor =
        Fma(Mul(gate, gate), Set(-0x1.2444f2p-4f), Set(-0x1.988454p+0f));
    return Mul(gate, factor);
  };
  GateQuantizeWith(exponent, gate_up, n, out, row);
}

void Rotate(float* head, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t left = half - i;
    const Lanes a = LoadFirst(head + i, left);
    const Lanes b = LoadFirst(head + half + i, left);
    const Lanes c = LoadFirst(cos + i, left);
    const Lanes s = LoadFirst(sin + i, left);
    StoreFirst(head + i, Sub(Mul(a, c), Mul(b, s)), left);
    StoreFirst(head + half + i, Add(Mul(b, c), Mul(a, s)), left);
  }
}

// Half precision has no room above 65504; what is not a number stays none.
inline Lanes BoundToHalf(Lanes x) {
  return Min(Set(65504.0f), Max(Set(-65504.0f), x));
}

void StoreKv(const float* key,
             const float* value,
             int64_t head_dim,
             int slot,
             uint16_t* block) {
  uint16_t halves[kLanes];
  uint16_t* const values =
      block + head_dim * kKvSlots + slot * RoundUp16(head_dim);
  for (int64_t i = 0; i < head_dim; i += kLanes) {
    const int64_t left = head_dim - i;
    StoreHalf(halves, BoundToHalf(LoadFirst(key + i, left)));
    for (int64_t j = 0; j < (left < kLanes ? left : kLanes); ++j) {
      block[(i + j) * kKvSlots + slot] = halves[j];
    }
    StoreHalf(values + i, BoundToHalf(LoadFirst(value + i, left)));
  }
}

float MaxOf(const float* values, int64_t n) {
  Lanes largest = Set(-BitsToFloat(kInfinityBits));
  int64_t i = 0;
  // Max keeps its second operand where the first is not a number.
  for (; i + kLanes <= n; i += kLanes) {
    largest = Max(Load(values + i), largest);
  }
  float top = MaxLane(largest);
  for (; i < n; ++i) {
    if (values[i] > top) top = values[i];
  }
  return top;
}

int64_t ArgMax(const float* values, int64_t n) {
  const float top = MaxOf(values, n);
  for (int64_t i = 0; i < n; ++i) {
    if (values[i] == top) return i;
  }
  return -1;
}
