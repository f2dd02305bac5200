// SPDX-License-Identifier: Apache-2.0
#include "common/kernels/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "common/kernels/half.h"

namespace specwire {
namespace {

// The half-precision number nearest to |x| <= 65504, ties to even, by search:
// the bits of positive halves ascend with their values.
uint16_t NearestHalf(double x) {
  uint32_t low = 0;
  uint32_t high = 0x7bff;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (HalfToFloat(static_cast<uint16_t>(middle)) < x) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0) return 0;
  const double above = HalfToFloat(static_cast<uint16_t>(low)) - x;
  const double below = x - HalfToFloat(static_cast<uint16_t>(low - 1));
  const bool down = below < above || (below == above && low % 2 == 1);
  return static_cast<uint16_t>(down ? low - 1 : low);
}

// The recipe of docs/numerics.md, written down plainly.
WeightGroup QuantizePlainly(const std::vector<float>& weights) {
  float abs_max = 0;
  for (const float w : weights) abs_max = std::max(abs_max, std::fabs(w));
  WeightGroup group = {};
  group.scale = NearestHalf(std::min(abs_max / 127, 65504.0f));
  const float scale = HalfToFloat(group.scale);
  for (size_t i = 0; i < weights.size() && scale > 0; ++i) {
    const float steps = std::nearbyint(weights[i] / scale);
    group.values[i] =
        static_cast<int8_t>(steps > 127    ? 127
                            : steps < -127 ? -127
                                           : static_cast<int>(steps));
  }
  return group;
}

bool Equal(const WeightGroup& a, const WeightGroup& b) {
  return std::equal(std::begin(a.values), std::end(a.values), b.values) &&
         a.scale == b.scale && a.minimum == b.minimum;
}

std::vector<float> RandomWeights(std::mt19937& random, size_t n, float size) {
  std::normal_distribution<float> normal;
  std::vector<float> weights(n);
  for (float& w : weights) w = normal(random) * size;
  return weights;
}

TEST(PackingTest, QuantisesAsTheRecipeSays) {
  std::mt19937 random(1);
  for (int step = 0; step < 20000; ++step) {
    const size_t n = step % 4 == 0 ? random() % 33 : 32;
    // From what no half can express to what is beyond its largest.
    const float size = std::ldexp(1.0f, static_cast<int>(random() % 60) - 32);
    std::vector<float> weights = RandomWeights(random, n, size);
    if (step % 5 == 0 && n > 0) weights[random() % n] *= 100;
    if (step % 7 == 0) {
      for (float& w : weights) w = random() % 3 == 0 ? 0.0f : w;
    }
    const WeightGroup got = QuantizeWeights(weights);
    ASSERT_TRUE(Equal(got, QuantizePlainly(weights))) << "step " << step;
    for (size_t i = n; i < kGroupSize; ++i) ASSERT_EQ(got.values[i], 0);
    ASSERT_EQ(got.minimum, 0);
  }
}

TEST(PackingTest, QuantisesEdges) {
  EXPECT_TRUE(Equal(QuantizeWeights({}), WeightGroup{}));
  EXPECT_TRUE(
      Equal(QuantizeWeights(std::vector<float>(32, -0.0f)), WeightGroup{}));
  // Too small for the least half, 2^-24.
  EXPECT_TRUE(Equal(QuantizeWeights(std::vector<float>(32, 127 * 0x1p-26f)),
                    WeightGroup{}));
  // A scale of 2^-24 instead of 1.4 times that: 178 steps are cut to 127.
  const WeightGroup small =
      QuantizeWeights(std::vector<float>(32, -127 * 1.4f * 0x1p-24f));
  EXPECT_EQ(small.scale, 1);
  EXPECT_EQ(small.values[31], -127);
  const WeightGroup large =
      QuantizeWeights({std::numeric_limits<float>::max(), 65504.0f, -1e30f});
  EXPECT_EQ(large.scale, 0x7bff);
  EXPECT_EQ(large.values[0], 127);
  EXPECT_EQ(large.values[1], 1);
  EXPECT_EQ(large.values[2], -127);
  // Ties go to the even step.
  std::vector<float> ties = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f};
  const WeightGroup even = QuantizeWeights(ties);
  EXPECT_EQ(even.scale, 0x3c00);
  EXPECT_EQ(std::vector<int>(even.values, even.values + 6),
            std::vector<int>({127, 0, 2, 2, 0, -2}));
}

TEST(PackingTest, ExpandsWithinHalfAStep) {
  std::mt19937 random(2);
  for (int step = 0; step < 1000; ++step) {
    const size_t n = 1 + random() % 32;
    const std::vector<float> weights = RandomWeights(random, n, 1);
    const WeightGroup group = QuantizeWeights(weights);
    std::vector<float> back(n);
    ExpandWeights(group, WeightForm::kInt8, absl::MakeSpan(back));
    const double scale = HalfToFloat(group.scale);
    for (size_t i = 0; i < n; ++i) {
      // The largest may be 127 times half a unit of the scale's last place
      // beyond the last step.
      ASSERT_NEAR(static_cast<double>(back[i]),
                  static_cast<double>(weights[i]),
                  scale * (0.5 + 127 * 0x1p-11));
      ASSERT_EQ(static_cast<double>(back[i]), scale * group.values[i]);
    }
  }
}

TEST(PackingTest, ExpandsInt4WithItsMinimum) {
  WeightGroup group = {};
  for (int i = 0; i < kGroupSize; ++i) {
    group.values[i] = static_cast<int8_t>(i / 2);
  }
  group.scale = 0x3800;    // 0.5
  group.minimum = 0xc400;  // -4
  std::vector<float> out(kGroupSize);
  ExpandWeights(group, WeightForm::kInt4, absl::MakeSpan(out));
  for (size_t i = 0; i < kGroupSize; ++i) {
    EXPECT_EQ(out[i], 0.5f * static_cast<float>(i / 2) - 4);
  }
}

// Random groups of a matrix, [outputs, groups].
std::vector<WeightGroup> RandomGroups(std::mt19937& random,
                                      WeightForm form,
                                      size_t count) {
  std::vector<WeightGroup> groups(count);
  for (WeightGroup& group : groups) {
    const bool int8 = form == WeightForm::kInt8;
    for (int8_t& value : group.values) {
      value = static_cast<int8_t>(int8 ? static_cast<int>(random() % 255) - 127
                                       : static_cast<int>(random() % 16));
    }
    group.scale = static_cast<uint16_t>(random());
    group.minimum = int8 ? uint16_t{0} : static_cast<uint16_t>(random());
  }
  return groups;
}

struct Packed {
  Packed(WeightForm form,
         int64_t outputs,
         int64_t groups,
         absl::Span<const WeightGroup> values)
      : weights(static_cast<size_t>(PackedWeightBytes(form, outputs, groups))),
        scales(static_cast<size_t>(PackedScales(form, outputs, groups))),
        matrix{form, outputs, groups, weights.data(), scales.data()} {
    for (int64_t o = 0; o < outputs; ++o) {
      PackOutput(form,
                 o,
                 values.subspan(static_cast<size_t>(o * groups),
                                static_cast<size_t>(groups)),
                 weights.data(),
                 scales.data());
    }
  }

  std::vector<uint8_t> weights;
  std::vector<uint16_t> scales;
  PackedMatrix matrix;
};

TEST(PackingTest, WhatIsPackedComesBack) {
  std::mt19937 random(3);
  for (const WeightForm form : {WeightForm::kInt8, WeightForm::kInt4}) {
    for (const int64_t outputs : {1, 2, 15, 16, 17, 31, 32, 33, 100}) {
      for (const int64_t groups : {1, 2, 3, 18}) {
        const std::vector<WeightGroup> values =
            RandomGroups(random, form, static_cast<size_t>(outputs * groups));
        const Packed packed(form, outputs, groups, values);
        for (int64_t i = 0; i < outputs * groups; ++i) {
          WeightGroup got;
          std::memset(&got, 0x55, sizeof(got));
          UnpackGroup(packed.matrix, i / groups, i % groups, &got);
          ASSERT_TRUE(Equal(got, values[static_cast<size_t>(i)]))
              << outputs << " outputs, " << groups << " groups, group " << i;
        }
      }
    }
  }
}

// The layout that the kernels rely on, as kernels.h gives it.
TEST(PackingTest, EveryWeightLiesWhereTheKernelsLookForIt) {
  constexpr int64_t kOutputs = 21;
  constexpr int64_t kGroups = 3;
  constexpr int64_t kBlocks = 2;
  std::mt19937 random(4);
  for (const WeightForm form : {WeightForm::kInt8, WeightForm::kInt4}) {
    const bool int8 = form == WeightForm::kInt8;
    const std::vector<WeightGroup> values =
        RandomGroups(random, form, kOutputs * kGroups);
    const Packed packed(form, kOutputs, kGroups, values);
    const int64_t quads = int8 ? 8 : 4;
    ASSERT_EQ(packed.weights.size(),
              static_cast<size_t>(kBlocks * kGroups * quads * 16 * 4));
    ASSERT_EQ(packed.scales.size(),
              static_cast<size_t>(kBlocks * kGroups * 16 * (int8 ? 1 : 2)));
    for (int64_t output = 0; output < kBlocks * 16; ++output) {
      for (int64_t g = 0; g < kGroups; ++g) {
        const int64_t at = output / 16 * kGroups + g;
        // Outputs beyond the last one are zero bytes.
        const WeightGroup group =
            output < kOutputs
                ? values[static_cast<size_t>(output * kGroups + g)]
                : WeightGroup{};
        for (int64_t i = 0; i < quads; ++i) {
          for (int64_t j = 0; j < 4; ++j) {
            const uint8_t byte = packed.weights[static_cast<size_t>(
                ((at * quads + i) * 16 + output % 16) * 4 + j)];
            const int low = group.values[4 * i + j];
            const int want = output >= kOutputs ? 0
                             : int8             ? low + 128
                                    : low + 16 * group.values[16 + 4 * i + j];
            ASSERT_EQ(byte, want) << "output " << output << ", group " << g;
          }
        }
        const int64_t scale = int8 ? at * 16 : at * 32;
        const auto lane = static_cast<size_t>(scale + output % 16);
        ASSERT_EQ(packed.scales[lane], group.scale);
        if (!int8) {
          ASSERT_EQ(packed.scales[lane + 16], group.minimum);
        }
      }
    }
  }
}

}  // namespace
}  // namespace specwire
