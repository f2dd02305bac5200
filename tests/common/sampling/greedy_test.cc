// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/greedy.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/common/sampling/sampling_test_util.h"

namespace specwire {
namespace {

TEST(ArgMaxTest, FindsTheLargest) {
  EXPECT_EQ(ArgMax(std::vector<float>{-3, -1, -2}), 1);
  EXPECT_EQ(ArgMax(std::vector<float>{1, kInf, 2}), 1);
  EXPECT_EQ(ArgMax(std::vector<float>{-kInf, -kInf, -1e38f}), 2);
}

TEST(ArgMaxTest, TakesTheLowestIndexAmongEquals) {
  EXPECT_EQ(ArgMax(std::vector<float>{1, 2, 2, 2}), 1);
  EXPECT_EQ(ArgMax(std::vector<float>{0.0f, -0.0f}), 0);
  EXPECT_EQ(ArgMax(std::vector<float>{-0.0f, 0.0f}), 0);
  EXPECT_EQ(ArgMax(std::vector<float>{-kInf, -kInf}), 0);
}

TEST(ArgMaxTest, NeverTakesNan) {
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, 1, kNan, 2, kNan}), 3);
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, -kInf}), 1);
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, kNan}), -1);
  EXPECT_EQ(ArgMax({}), -1);
}

int32_t ArgMaxPlainly(const std::vector<float>& row) {
  int32_t best = -1;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] != row[i]) continue;
    if (best < 0 || row[i] > row[static_cast<size_t>(best)]) {
      best = static_cast<int32_t>(i);
    }
  }
  return best;
}

TEST(ArgMaxTest, LongRowsGiveWhatALoopGives) {
  uint32_t seed = 0;
  for (const size_t size :
       {1u, 16u, 255u, 256u, 300u, 4095u, 4096u, 4097u, 9000u, 49152u}) {
    for (int kind = 0; kind < 27; ++kind) {
      const std::vector<float> row = HardLogits(size, kind, ++seed);
      ASSERT_EQ(ArgMax(row), ArgMaxPlainly(row))
          << "size " << size << ", kind " << kind;
    }
  }
}

}  // namespace
}  // namespace specwire
