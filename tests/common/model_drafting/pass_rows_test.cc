// SPDX-License-Identifier: Apache-2.0
#include "common/model_drafting/pass_rows.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "common/model/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;

TEST(PlanRowsTest, ThoseNotFarBehindCatchUpAtOnce) {
  EXPECT_THAT(PlanRows({1}), ElementsAre(1));
  EXPECT_THAT(PlanRows({1, 5, kMaxStepRows, 1}),
              ElementsAre(1, 5, kMaxStepRows, 1));
}

TEST(PlanRowsTest, APromptAloneGoesInLargeChunks) {
  EXPECT_THAT(PlanRows({4000}), ElementsAre(kMaxChunkRows));
  EXPECT_THAT(PlanRows({kMaxStepRows + 1}), ElementsAre(kMaxStepRows + 1));
  // The second has what the first leaves.
  EXPECT_THAT(PlanRows({200, 4000}), ElementsAre(200, kMaxChunkRows - 200));
  EXPECT_THAT(PlanRows({4000, 200}), ElementsAre(kMaxChunkRows, 0));
}

TEST(PlanRowsTest, APromptBesideOthersGoesInChunksOfTheirSize) {
  EXPECT_THAT(PlanRows({4000, 1}), ElementsAre(kMinChunkRows, 1));
  EXPECT_THAT(PlanRows({1, 4000, 1, 40}), ElementsAre(1, kMinChunkRows, 1, 0));
  std::vector<int> behind(50, 1);
  behind.push_back(4000);
  EXPECT_EQ(PlanRows(behind).back(), 50);
}

TEST(PlanRowsTest, KeepsItsLimitsAndAlwaysAdvances) {
  constexpr unsigned kSeed = 20240701;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int> behind(1 + random() % 64);
    for (int& count : behind) {
      count = 1 + static_cast<int>(random() % (random() % 2 == 0 ? 40 : 400));
    }
    const std::vector<int> rows = PlanRows(behind);
    ASSERT_EQ(rows.size(), behind.size());
    int chunk_rows = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_GE(rows[i], 0);
      ASSERT_LE(rows[i], behind[i]);
      if (behind[i] > kMaxStepRows) {
        chunk_rows += rows[i];
      } else {
        ASSERT_TRUE(rows[i] == 0 || rows[i] == behind[i]);
      }
    }
    const int all = std::accumulate(rows.begin(), rows.end(), 0);
    ASSERT_GE(all, 1);
    ASSERT_LE(all, Engine::kMaxRows);
    // Those far behind are never left out altogether, nor get too much.
    ASSERT_LE(chunk_rows, kMaxChunkRows);
    if (chunk_rows < all) {
      ASSERT_LE(chunk_rows, std::max(all - chunk_rows, kMinChunkRows));
    }
    if (*std::max_element(behind.begin(), behind.end()) > kMaxStepRows) {
      ASSERT_GE(chunk_rows, kMinChunkRows);
    }
  }
}

}  // namespace
}  // namespace specwire
