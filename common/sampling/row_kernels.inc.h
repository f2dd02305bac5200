// SPDX-License-Identifier: Apache-2.0
// No #pragma once: each instruction set's file includes this once, inside an
// unnamed namespace, after it has defined
//   Words              kWordLanes words, each in the low half of 64 bits
//   Same               one word in all lanes
//   Multiply           the low halves' product, 64 bits
//   HighHalf, Xor
//   LoadBlocks         vector v of the numbers of the blocks of some groups
//   LoadLimits         vector v of the groups' thresholds, one for each block
//   BelowMask          bit i: lane i of all of four Words is below a limit
// Nothing here may call an inline or template function of a library: see
// row_kernels.h.

constexpr int kRounds = 10;
// Vectors that are computed side by side hold this many groups.
constexpr int kStepGroups = kVectors * kWordLanes / 4;

// A key schedule in all lanes.
struct RoundKeys {
  Words first[kRounds];
  Words second[kRounds];
};

inline void MakeKeys(uint64_t seed, RoundKeys* keys) {
  uint32_t first = static_cast<uint32_t>(seed);
  uint32_t second = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kRounds; ++round) {
    keys->first[round] = Same(first);
    keys->second[round] = Same(second);
    first += 0x9E3779B9u;
    second += 0xBB67AE85u;
  }
}

// Bit i: all four words of block i % 4 of groups[i / 4] are below the group's
// threshold. Upper halves of lanes hold rubbish on the way: neither Multiply
// nor BelowMask looks at them.
inline uint64_t BlocksBelow(const NoiseKey& key,
                            const RoundKeys& keys,
                            const uint32_t* groups,
                            const uint32_t* thresholds) {
  const Words factor0 = Same(0xD2511F53u);
  const Words factor1 = Same(0xCD9E8D57u);
  Words w0[kVectors], w1[kVectors], w2[kVectors], w3[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    w0[v] = Same(key.position);
    w1[v] = LoadBlocks(groups, v);
    w2[v] = Same(key.stream);
    w3[v] = Same(key.choice);
  }
#pragma GCC unroll 10
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Words product0 = Multiply(factor0, w0[v]);
      const Words product1 = Multiply(factor1, w2[v]);
      w0[v] = Xor(Xor(HighHalf(product1), w1[v]), keys.first[round]);
      w1[v] = product1;
      w2[v] = Xor(Xor(HighHalf(product0), w3[v]), keys.second[round]);
      w3[v] = product0;
    }
  }
  uint64_t below = 0;
  for (int v = 0; v < kVectors; ++v) {
    below |= BelowMask(w0[v], w1[v], w2[v], w3[v], LoadLimits(thresholds, v))
             << (v * kWordLanes);
  }
  return below;
}

int64_t Sieve(const NoiseKey& key,
              const uint32_t* groups,
              const uint32_t* thresholds,
              int64_t n,
              uint32_t* hits) {
  RoundKeys keys;
  MakeKeys(key.seed, &keys);
  int64_t num_hits = 0;
  for (int64_t i = 0; i < n; i += kStepGroups) {
    const int64_t count = n - i < kStepGroups ? n - i : kStepGroups;
    uint64_t below = 0;
    if (count == kStepGroups) {
      below = BlocksBelow(key, keys, groups + i, thresholds + i);
    } else {
      uint32_t last_groups[kStepGroups] = {};
      uint32_t last_thresholds[kStepGroups] = {};
      for (int64_t j = 0; j < count; ++j) {
        last_groups[j] = groups[i + j];
        last_thresholds[j] = thresholds[i + j];
      }
      below = BlocksBelow(key, keys, last_groups, last_thresholds);
    }
    for (int64_t j = 0; j < count; ++j) {
      hits[num_hits] = groups[i + j];
      num_hits += (below >> (4 * j) & 15) != 15;
    }
  }
  return num_hits;
}

// Exp() of common/kernels/maths.h, operation for operation, for x in [-700,
// 700]: no branch, and the scaling in one step, which is exact there.
inline double PlainExp(double x) {
  constexpr double kLn2High = 0x1.62e42feep-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kRounder = 0x1.8p+52;
  const double shifted = x * kLog2E + kRounder;
  const double n = shifted - kRounder;
  const double high = x - n * kLn2High;
  const double low = n * kLn2Low;
  const double r = high - low;
  const double lost = (high - r) - low;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  const double e = 1.0 + (r + (p * r * r + lost));
  // The low bits of `shifted` are n: add it to the exponent.
  return __builtin_bit_cast(double,
                            __builtin_bit_cast(uint64_t, e) +
                                (__builtin_bit_cast(uint64_t, shifted) << 52));
}

void Weights(const float* logits,
             int64_t n,
             double temperature,
             double best,
             double* weights) {
  if (temperature == 1.0) {
    for (int64_t i = 0; i < n; ++i) {
      weights[i] = static_cast<double>(logits[i]) - best;
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      weights[i] = static_cast<double>(logits[i]) / temperature - best;
    }
  }
  // In pieces, each step a loop of its own, which compilers know to vectorise.
  constexpr int64_t kPiece = 64;
  double exponents[kPiece];
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t count = n - begin < kPiece ? n - begin : kPiece;
    double* const out = weights + begin;
    for (int64_t i = 0; i < count; ++i) {
      exponents[i] = out[i] >= -700.0 ? out[i] : -701.0;
    }
    for (int64_t i = 0; i < count; ++i) out[i] = PlainExp(exponents[i]);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = exponents[i] >= -700.0 ? out[i] : 0.0;
    }
  }
}
