// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/kernels/kernels.h"

namespace specwire {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

// What memory holds that a kernel must leave alone.
inline constexpr float kUntouched = 12345.678f;

inline std::string IsaTestName(const ::testing::TestParamInfo<Isa>& info) {
  return IsaName(info.param);
}

inline auto AllIsas() {
  return ::testing::Values(Isa::kScalar, Isa::kAvx2, Isa::kAvx512Vnni);
}

// The functions of one instruction set. Skipped, with a line that says so,
// where the processor lacks it.
class KernelsTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    kernels_ = KernelsFor(GetParam());
    if (kernels_ == nullptr) {
      GTEST_SKIP() << "NOT TESTED: this processor lacks the instruction set";
    }
  }

  int Uniform(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }

  // n numbers of which most are ordinary; `kind` says what else. Kinds repeat
  // after kNumKinds.
  static constexpr int kNumKinds = 12;
  std::vector<float> Numbers(int64_t n, int kind) {
    std::normal_distribution<float> normal;
    std::vector<float> numbers(static_cast<size_t>(n));
    for (float& x : numbers) x = normal(random_);
    const auto scale = [&](float factor) {
      for (float& x : numbers) x *= factor;
    };
    const auto some = [&](float value) {
      for (float& x : numbers) {
        if (Uniform(0, 19) == 0) x = value;
      }
    };
    switch (kind % kNumKinds) {
      case 1:
        std::fill(numbers.begin(), numbers.end(), 0.0f);
        some(-0.0f);
        break;
      case 2:
        some(1e6f);
        break;
      case 3:
        scale(1e-39f);  // Subnormal.
        break;
      case 4:
        scale(0x1p-101f);  // On both sides of the least absmax.
        break;
      case 5:
        some(0x1p-100f);
        some(-3e-41f);
        break;
      case 6:
        some(kInf);
        break;
      case 7:
        some(kNan);
        some(-kInf);
        break;
      case 8:
        some(std::numeric_limits<float>::max());
        break;
      case 9:  // All of one size.
        for (float& x : numbers) x = x < 0 ? -0.75f : 0.75f;
        break;
      case 10:  // Halfway between two steps of a scale of 1.
        for (float& x : numbers) {
          x = static_cast<float>(Uniform(-126, 126)) + 0.5f;
        }
        if (n > 0) numbers[0] = 127.0f;
        break;
      case 11:
        scale(40.0f);
        break;
      default:
        break;
    }
    return numbers;
  }

  const Kernels* kernels_ = nullptr;
  const Kernels& scalar_ = *KernelsFor(Isa::kScalar);
  std::mt19937 random_{1};
};

// Equal bit by bit, or both no number: which NaN an operation gives is not
// pinned.
inline bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (a != a && b != b);
}

inline ::testing::AssertionResult AllSame(const std::vector<float>& got,
                                          const std::vector<float>& want) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure()
           << got.size() << " values instead of " << want.size();
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (!Same(got[i], want[i])) {
      return ::testing::AssertionFailure()
             << "value " << i << ": " << got[i] << " instead of " << want[i];
    }
  }
  return ::testing::AssertionSuccess();
}

// Memory of some QuantizedRows, filled with what no kernel writes.
struct QuantizedMemory {
  QuantizedMemory(int64_t rows, int64_t groups_in_row)
      : all(static_cast<size_t>(rows * groups_in_row)), groups(groups_in_row) {
    for (QuantizedGroup& group : all) {
      std::fill(std::begin(group.values), std::end(group.values), int8_t{-128});
      group.scale = kUntouched;
      group.offset = 7;
      group.scaled_sum = kUntouched;
    }
  }

  QuantizedGroup& At(int64_t row, int64_t group) {
    return all[static_cast<size_t>(row * groups + group)];
  }
  const QuantizedGroup& At(int64_t row, int64_t group) const {
    return all[static_cast<size_t>(row * groups + group)];
  }
  QuantizedRows View() { return {all.data(), groups}; }

  std::vector<QuantizedGroup> all;
  int64_t groups;
};

// Sets what follows from a group's values and scale.
inline void SetSums(QuantizedGroup* group) {
  int32_t sum = 0;
  for (const int8_t value : group->values) sum += value;
  group->offset = -128 * sum;
  group->scaled_sum = group->scale * static_cast<float>(sum);
}

inline int64_t GroupsFor(int64_t n) {
  return (n + kGroupSize - 1) / kGroupSize;
}

}  // namespace specwire
