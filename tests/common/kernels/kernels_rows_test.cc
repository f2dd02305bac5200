// SPDX-License-Identifier: Apache-2.0
// The kernels that work on one row, held bit for bit to the arithmetic of
// docs/numerics.md written down plainly.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/kernels/half.h"
#include "common/kernels/kernels.h"
#include "tests/common/kernels/kernels_test_util.h"

namespace specwire {
namespace {

class KernelsRowsTest : public KernelsTest {
 protected:
  // Quantises `x` as the recipe says.
  static void QuantizePlainly(const std::vector<float>& x,
                              int64_t row,
                              QuantizedMemory* out) {
    for (int64_t g = 0; g < out->groups; ++g) {
      float group[kGroupSize] = {};
      float abs_max = 0;
      bool finite = true;
      for (int64_t i = 0; i < kGroupSize; ++i) {
        const auto at = static_cast<size_t>(g * kGroupSize + i);
        if (at < x.size()) group[i] = x[at];
        finite = finite && std::isfinite(group[i]);
        abs_max = std::max(abs_max, std::fabs(group[i]));
      }
      const bool zero = !finite || abs_max < std::ldexp(1.0f, -100);
      QuantizedGroup& to = out->At(row, g);
      to.scale = !finite ? kNan : zero ? 0.0f : abs_max / 127;
      for (int i = 0; i < kGroupSize; ++i) {
        // The default rounding mode: to nearest, ties to even.
        const float steps = zero ? 0.0f : std::nearbyint(group[i] / to.scale);
        ASSERT_LE(std::fabs(steps), 127);
        to.values[i] = static_cast<int8_t>(steps);
      }
      SetSums(&to);
    }
  }

  static void ExpectEqual(const QuantizedMemory& got,
                          const QuantizedMemory& want) {
    ASSERT_EQ(got.all.size(), want.all.size());
    for (size_t i = 0; i < got.all.size(); ++i) {
      const QuantizedGroup& a = got.all[i];
      const QuantizedGroup& b = want.all[i];
      ASSERT_TRUE(std::equal(
          std::begin(a.values), std::end(a.values), std::begin(b.values)))
          << "group " << i;
      ASSERT_TRUE(Same(a.scale, b.scale)) << "group " << i;
      ASSERT_EQ(a.offset, b.offset) << "group " << i;
      ASSERT_TRUE(Same(a.scaled_sum, b.scaled_sum)) << "group " << i;
    }
  }

  // 1 / sqrt(mean(x^2) + eps) with the 16 lanes of the recipe.
  static float InverseNorm(const std::vector<float>& x, float eps) {
    float lanes[16] = {};
    for (size_t i = 0; i < x.size(); ++i) {
      lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
    }
    for (int width = 8; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    const float mean = lanes[0] / static_cast<float>(x.size());
    return 1.0f / std::sqrt(mean + eps);
  }

  int64_t Length(int step) { return step < 100 ? step + 1 : Uniform(1, 700); }
};

constexpr int kSteps = 400;
constexpr int64_t kRows = 3;

TEST_P(KernelsRowsTest, QuantizesAsTheRecipeSays) {
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> x = Numbers(Length(step), step);
    const auto n = static_cast<int64_t>(x.size());
    const int64_t row = step % kRows;
    QuantizedMemory want(kRows, GroupsFor(n));
    QuantizePlainly(x, row, &want);
    QuantizedMemory got(kRows, GroupsFor(n));
    kernels_->quantize(x.data(), n, got.View(), row);
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(got, want)) << "step " << step;
  }
}

TEST_P(KernelsRowsTest, QuantizesNormedRowsAsTheRecipeSays) {
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> x = Numbers(Length(step), step);
    const auto n = static_cast<int64_t>(x.size());
    const std::vector<float> norm = Numbers(n, step / kNumKinds);
    const float eps = step % 2 == 0 ? 1e-5f : 1e-12f;
    const int64_t row = step % kRows;
    const float scale = InverseNorm(x, eps);
    std::vector<float> normed(x.size());
    for (size_t i = 0; i < x.size(); ++i) normed[i] = x[i] * scale * norm[i];
    QuantizedMemory want(kRows, GroupsFor(n));
    QuantizePlainly(normed, row, &want);
    QuantizedMemory got(kRows, GroupsFor(n));
    kernels_->rms_norm_quantize(x.data(), norm.data(), n, eps, got.View(), row);
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(got, want)) << "step " << step;
  }
}

TEST_P(KernelsRowsTest, NormsRowsAsTheRecipeSays) {
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> x = Numbers(Length(step), step);
    const auto n = static_cast<int64_t>(x.size());
    const std::vector<float> norm = Numbers(n, step / kNumKinds);
    const float scale = InverseNorm(x, 1e-6f);
    std::vector<float> want(x.size());
    for (size_t i = 0; i < x.size(); ++i) want[i] = x[i] * scale * norm[i];
    // In place, and with something behind it.
    std::vector<float> got = x;
    got.push_back(kUntouched);
    want.push_back(kUntouched);
    kernels_->rms_norm(got.data(), norm.data(), n, 1e-6f, got.data());
    ASSERT_TRUE(AllSame(got, want)) << "step " << step;
  }
}

// What silu and gelu give to the exponential.
float SiluExponent(float gate) { return 0.0f - gate; }
float GeluExponent(float gate) {
  return gate * std::fma(gate * gate, -0x1.2444f2p-4f, -0x1.988454p+0f);
}

TEST_P(KernelsRowsTest, QuantizesGatedRowsAsTheRecipeSays) {
  for (int step = 0; step < 2 * kSteps; ++step) {
    const bool gelu = step >= kSteps;
    const int64_t n = Length(step % kSteps);
    const auto size = static_cast<size_t>(n);
    std::vector<float> gate_up = Numbers(n, step);
    const std::vector<float> up = Numbers(n, step / kNumKinds);
    gate_up.insert(gate_up.end(), up.begin(), up.end());
    std::vector<float> gated(size);
    for (size_t i = 0; i < size; ++i) {
      const float gate = gate_up[i];
      const float exponent = gelu ? GeluExponent(gate) : SiluExponent(gate);
      float exp;
      scalar_.exp(&exponent, 1, &exp);
      gated[i] = gate / (1.0f + exp) * up[i];
    }
    const int64_t row = step % kRows;
    QuantizedMemory want(kRows, GroupsFor(n));
    QuantizePlainly(gated, row, &want);
    QuantizedMemory got(kRows, GroupsFor(n));
    const auto gate =
        gelu ? kernels_->gelu_gate_quantize : kernels_->gate_quantize;
    gate(gate_up.data(), n, got.View(), row);
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(got, want)) << "step " << step;
  }
}

// The recipe's gelu is 0.5 g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))).
TEST(GeluTest, IsTheTanhForm) {
  const Kernels* const kernels = KernelsFor(Isa::kScalar);
  for (float gate = -12; gate <= 12; gate += 0.01f) {
    const float exponent = GeluExponent(gate);
    float exp;
    kernels->exp(&exponent, 1, &exp);
    const double g = double{gate};
    const double want =
        0.5 * g *
        (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
    EXPECT_NEAR(double{gate / (1.0f + exp)}, want, 2e-6) << gate;
  }
}

TEST_P(KernelsRowsTest, RotatesPairsAsTheRecipeSays) {
  for (int step = 0; step < kSteps; ++step) {
    const int64_t half = step < 130 ? step + 1 : Uniform(1, 130);
    const auto size = static_cast<size_t>(half);
    const std::vector<float> cos = Numbers(half, 0);
    const std::vector<float> sin = Numbers(half, 0);
    std::vector<float> want = Numbers(2 * half, step);
    // What lies behind the head is not of the head.
    want.push_back(kUntouched);
    std::vector<float> got = want;
    for (size_t i = 0; i < size; ++i) {
      const float a = want[i];
      const float b = want[i + size];
      want[i] = a * cos[i] - b * sin[i];
      want[i + size] = b * cos[i] + a * sin[i];
    }
    kernels_->rotate(got.data(), cos.data(), sin.data(), half);
    ASSERT_TRUE(AllSame(got, want)) << "step " << step;
  }
}

TEST_P(KernelsRowsTest, StoresKeysAcrossAndValuesAlongABlock) {
  for (int step = 0; step < kSteps; ++step) {
    const int64_t dim = step < 130 ? step + 1 : Uniform(1, 256);
    const int64_t padded = (dim + 15) / 16 * 16;
    const int slot = Uniform(0, kKvSlots - 1);
    std::vector<float> key = Numbers(dim, step);
    const std::vector<float> value = Numbers(dim, step / kNumKinds);
    // Subnormal as half precision.
    if (step % 5 == 0) {
      for (float& x : key) x *= 1e-6f;
    }
    std::vector<uint16_t> want(static_cast<size_t>(kKvSlots * (dim + padded)),
                               0x3555);
    std::vector<uint16_t> got = want;
    const auto half = [](float x) {
      return FloatToHalf(x > 65504 ? 65504 : x < -65504 ? -65504 : x);
    };
    for (int64_t i = 0; i < padded; ++i) {
      const auto at = static_cast<size_t>(i);
      const auto to = static_cast<size_t>(dim * kKvSlots + slot * padded + i);
      want[to] = i < dim ? half(value[at]) : 0;
      if (i < dim) {
        want[static_cast<size_t>(i * kKvSlots + slot)] = half(key[at]);
      }
    }
    kernels_->store_kv(key.data(), value.data(), dim, slot, got.data());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(Same(HalfToFloat(got[i]), HalfToFloat(want[i])))
          << "step " << step << ", number " << i;
    }
  }
}

// Written down plainly.
int64_t PlainArgMax(const std::vector<float>& values) {
  int64_t best = -1;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != values[i]) continue;
    if (best < 0 || values[i] > values[static_cast<size_t>(best)]) {
      best = static_cast<int64_t>(i);
    }
  }
  return best;
}

TEST_P(KernelsRowsTest, ArgMaxIsTheLowestOfTheLargestNumbers) {
  const float few[] = {kNan, -kInf, -1.0f, -0.0f, 0.0f, 1.0f, kInf};
  for (int step = 0; step < 5000; ++step) {
    const int64_t n = Uniform(0, 130);
    std::vector<float> values = Numbers(n, step);
    // Ties, among some or all of the few.
    if (step % 2 == 0) {
      const int limit = Uniform(0, 6);
      for (float& value : values) value = few[Uniform(0, limit)];
    }
    ASSERT_EQ(kernels_->arg_max(values.data(), n), PlainArgMax(values))
        << "step " << step << ", " << n << " values";
  }
}

TEST_P(KernelsRowsTest, MaxIsTheLargestNumber) {
  const float few[] = {kNan, -kInf, -1.0f, -0.0f, 0.0f, 1.0f, kInf};
  for (int step = 0; step < 3000; ++step) {
    const int64_t n = Uniform(0, 130);
    std::vector<float> values = Numbers(n, step);
    if (step % 2 == 0) {
      const int limit = Uniform(0, 6);
      for (float& value : values) value = few[Uniform(0, limit)];
    }
    const int64_t best = PlainArgMax(values);
    ASSERT_EQ(kernels_->max(values.data(), n),
              best < 0 ? -kInf : values[static_cast<size_t>(best)])
        << "step " << step << ", " << n << " values";
  }
}

TEST_P(KernelsRowsTest, ArgMaxFindsALateWinnerInALongRow) {
  std::vector<float> values(49152, 1.0f);
  for (const int64_t at : {0, 15, 16, 49135, 49136, 49151}) {
    values[static_cast<size_t>(at)] = 1.0000001f;
    EXPECT_EQ(kernels_->arg_max(values.data(), 49152), at);
    values[static_cast<size_t>(at)] = 1.0f;
  }
  EXPECT_EQ(kernels_->arg_max(values.data(), 49152), 0);
  EXPECT_EQ(kernels_->arg_max(values.data(), 0), -1);
}

// Distance from e^x in units of its last place as float32.
double UlpError(float got, float x) {
  const long double want = std::exp(static_cast<long double>(x));
  int exponent;
  std::frexp(static_cast<double>(want), &exponent);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want)) /
         std::ldexp(1.0, exponent - 24);
}

TEST_P(KernelsRowsTest, ExpIsWithinTwoUnitsOfTheLastPlace) {
  constexpr int kNumbers = 1 << 20;
  std::vector<float> x;
  for (int i = 0; i <= kNumbers; ++i) {
    const float part = static_cast<float>(i) / kNumbers;
    x.push_back(-87.0f + 175.0f * part);
    x.push_back(-1.0f + 2.0f * part);
  }
  // Near the places where the reduction goes on to the next power of two.
  for (int n = -125; n <= 126; ++n) {
    const auto edge =
        static_cast<float>((n + 0.5) * 0.693147180559945309417232);
    for (float step = -8; step <= 8; ++step) {
      x.push_back(edge + edge * step * 0x1p-24f);
    }
  }
  std::vector<float> got(x.size());
  kernels_->exp(x.data(), static_cast<int64_t>(x.size()), got.data());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = UlpError(got[i], x[i]);
    worst = std::max(worst, error);
    ASSERT_LE(error, 2) << x[i];
  }
  RecordProperty("worst_ulp_error", std::to_string(worst));
}

TEST_P(KernelsRowsTest, ExpEndsWhereItSays) {
  const std::vector<float> x = {0.0f,
                                -0.0f,
                                -87.0f,
                                -87.00001f,
                                -1e30f,
                                -kInf,
                                88.0f,
                                88.5f,
                                1e30f,
                                kInf,
                                kNan,
                                1e-45f};
  std::vector<float> got(x.size() + 1, kUntouched);
  kernels_->exp(x.data(), static_cast<int64_t>(x.size()), got.data());
  const float top = got[6];
  EXPECT_LE(UlpError(top, 88.0f), 2);
  EXPECT_LE(UlpError(got[2], -87.0f), 2);
  EXPECT_TRUE(AllSame(
      got, {1, 1, got[2], 0, 0, 0, top, top, top, top, kNan, 1, kUntouched}));
}

TEST_P(KernelsRowsTest, ExpHasTheScalarBits) {
  if (GetParam() == Isa::kScalar) GTEST_SKIP() << "it is the scalar one";
  // All bit patterns, by a stride that meets every exponent and sign.
  std::vector<float> x;
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 2003) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  const auto n = static_cast<int64_t>(x.size());
  std::vector<float> got(x.size());
  std::vector<float> want(x.size());
  kernels_->exp(x.data(), n, got.data());
  scalar_.exp(x.data(), n, want.data());
  ASSERT_TRUE(AllSame(got, want));
}

INSTANTIATE_TEST_SUITE_P(All, KernelsRowsTest, AllIsas(), IsaTestName);

TEST(KernelsForTest, GivesWhatItIsAskedFor) {
  ASSERT_NE(KernelsFor(Isa::kScalar), nullptr);
  Isa best = Isa::kScalar;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512Vnni}) {
    const Kernels* const kernels = KernelsFor(isa);
    if (kernels == nullptr) continue;
    EXPECT_EQ(kernels->isa, isa);
    best = isa;
  }
  EXPECT_EQ(BestKernels().isa, best);
}

}  // namespace
}  // namespace specwire
