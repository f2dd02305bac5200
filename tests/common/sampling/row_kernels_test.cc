// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/row_kernels.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/kernels/kernels.h"
#include "common/kernels/maths.h"
#include "common/sampling/philox.h"
#include "common/sampling/row_maxima.h"
#include "gtest/gtest.h"
#include "tests/common/sampling/sampling_test_util.h"

namespace specwire {
namespace {

std::vector<std::pair<std::string, const RowKernels*>> AllKernels() {
  std::vector<std::pair<std::string, const RowKernels*>> all = {
      {"scalar", &kScalarRowKernels}};
#if defined(__x86_64__)
  if (KernelsFor(Isa::kAvx2) != nullptr) {
    all.push_back({"avx2", &kAvx2RowKernels});
  }
  if (KernelsFor(Isa::kAvx512Vnni) != nullptr) {
    all.push_back({"avx512", &kAvx512RowKernels});
  }
#endif
  return all;
}

// Philox written down as in its paper, for one block.
std::vector<uint32_t> SievePlainly(const NoiseKey& key,
                                   const std::vector<uint32_t>& groups,
                                   const std::vector<uint32_t>& thresholds) {
  std::vector<uint32_t> hits;
  for (size_t i = 0; i < groups.size(); ++i) {
    bool hit = false;
    for (uint32_t block = 0; block < 4; ++block) {
      const std::array<uint32_t, 4> words = Philox4x32(
          {key.position, 4 * groups[i] + block, key.stream, key.choice},
          key.seed);
      for (const uint32_t word : words) hit |= word >= thresholds[i];
    }
    if (hit) hits.push_back(groups[i]);
  }
  return hits;
}

TEST(RowKernelsTest, TheSieveFindsWhatPhiloxSays) {
  std::mt19937_64 random(3);
  for (const auto& [name, kernels] : AllKernels()) {
    SCOPED_TRACE(name);
    for (size_t size = 0; size < 70; ++size) {
      const NoiseKey key = {.seed = random(),
                            .position = static_cast<uint32_t>(random()),
                            .stream = static_cast<uint32_t>(random() % 5),
                            .choice = static_cast<uint32_t>(random() % 3)};
      std::vector<uint32_t> groups;
      std::vector<uint32_t> thresholds;
      for (size_t i = 0; i < size; ++i) {
        groups.push_back(static_cast<uint32_t>(random() % (1 << 16)));
        // About half of them are hit; some surely, some hardly ever.
        const uint64_t kind = random() % 6;
        thresholds.push_back(
            kind == 0   ? 0
            : kind == 1 ? 0xffffffffu
                        : 0xf5000000u + static_cast<uint32_t>(random() >> 40));
      }
      const std::vector<uint32_t> want = SievePlainly(key, groups, thresholds);
      std::vector<uint32_t> hits(size);
      hits.resize(static_cast<size_t>(kernels->sieve(key,
                                                     groups.data(),
                                                     thresholds.data(),
                                                     static_cast<int64_t>(size),
                                                     hits.data())));
      EXPECT_EQ(hits, want) << "size " << size;
    }
  }
}

TEST(RowKernelsTest, TheSieveKeepsAWordThatEqualsTheThreshold) {
  const NoiseKey key = {.seed = 9, .position = 4, .stream = 0, .choice = 1};
  for (const auto& [name, kernels] : AllKernels()) {
    SCOPED_TRACE(name);
    for (uint32_t block = 0; block < 4; ++block) {
      uint32_t largest = 0;
      for (uint32_t b = 0; b < 4; ++b) {
        for (const uint32_t word : Philox4x32({4, 4 * 77 + b, 0, 1}, 9)) {
          largest = std::max(largest, word);
        }
      }
      const uint32_t group = 77;
      uint32_t hit = 0;
      EXPECT_EQ(kernels->sieve(key, &group, &largest, 1, &hit), 1);
      EXPECT_EQ(hit, 77u);
      const uint32_t above = largest + 1;
      EXPECT_EQ(kernels->sieve(key, &group, &above, 1, &hit), 0);
    }
  }
}

TEST(RowKernelsTest, WeightsHaveTheBitsOfExp) {
  std::vector<float> logits = {
      0, -0.0f, kNan, -kInf, -700, -700.1f, -1e-30f, 1e-30f, -745.f, -1e38f};
  std::mt19937 random(8);
  for (float scale : {1e-3f, 1.0f, 30.0f, 690.0f}) {
    for (int i = 0; i < 5000; ++i) {
      logits.push_back(-scale * static_cast<float>(random()) * 0x1p-32f);
    }
  }
  for (const auto& [name, kernels] : AllKernels()) {
    SCOPED_TRACE(name);
    for (const double temperature : {1.0, 0.7, 1.3}) {
      for (const double best : {0.0, 1.25}) {
        std::vector<double> weights(logits.size(), -1);
        kernels->weights(logits.data(),
                         static_cast<int64_t>(logits.size()),
                         temperature,
                         best,
                         weights.data());
        for (size_t i = 0; i < logits.size(); ++i) {
          const double x = static_cast<double>(logits[i]) / temperature - best;
          ASSERT_EQ(weights[i], x >= -700 ? Exp(x) : 0.0) << logits[i];
        }
      }
    }
  }
}

TEST(RowMaximaTest, EveryGroupHasItsLargest) {
  for (const size_t size : {1u, 15u, 16u, 17u, 64u, 100u, 1000u, 4097u}) {
    for (int kind = 0; kind < 9; ++kind) {
      const std::vector<float> row =
          HardLogits(size, kind, static_cast<uint32_t>(size) + 7);
      RowMaxima maxima;
      maxima.Compute(row);
      ASSERT_EQ(maxima.groups().size(), (size + 15) / 16);
      float largest = -kInf;
      for (size_t g = 0; g < maxima.groups().size(); ++g) {
        float want = -kInf;
        for (size_t i = 16 * g; i < std::min(size, 16 * g + 16); ++i) {
          if (row[i] > want) want = row[i];
        }
        EXPECT_EQ(maxima.groups()[g], want);
        largest = std::max(largest, want);
      }
      EXPECT_EQ(maxima.largest(), largest);
      for (const int k : {1, 3, 40, 200, 5000}) {
        const float bound = maxima.LowerBoundOfKth(k);
        const auto above = std::count_if(
            row.begin(), row.end(), [bound](float x) { return x >= bound; });
        if (bound > -kInf) {
          EXPECT_GE(above, k);
        }
      }
    }
  }
}

}  // namespace
}  // namespace specwire
