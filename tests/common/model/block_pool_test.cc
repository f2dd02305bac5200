// SPDX-License-Identifier: Apache-2.0
#include "common/model/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BlockPoolTest, HandsOutAllOrNothing) {
  BlockPool pool(3);
  std::vector<int32_t> blocks;
  EXPECT_FALSE(pool.Allocate(4, &blocks));
  EXPECT_THAT(blocks, IsEmpty());
  EXPECT_EQ(pool.used(), 0);
  EXPECT_TRUE(pool.Allocate(2, &blocks));
  EXPECT_FALSE(pool.Allocate(2, &blocks));
  EXPECT_EQ(blocks.size(), 2u);
  EXPECT_EQ(pool.used(), 2);
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.total(), 3);
}

TEST(BlockPoolTest, AppendsAndAllowsNone) {
  BlockPool pool(3);
  std::vector<int32_t> blocks = {77};
  EXPECT_TRUE(pool.Allocate(0, &blocks));
  EXPECT_TRUE(pool.Allocate(2, &blocks));
  EXPECT_THAT(blocks, ElementsAre(77, 0, 1));
  BlockPool empty(0);
  EXPECT_FALSE(empty.Allocate(1, &blocks));
  EXPECT_TRUE(empty.Allocate(0, &blocks));
}

TEST(BlockPoolTest, HandsOutTheLastFreedFirst) {
  BlockPool pool(8);
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool.Allocate(5, &blocks));
  EXPECT_TRUE(pool.Release(1, false));
  EXPECT_TRUE(pool.Release(3, false));
  std::vector<int32_t> again;
  ASSERT_TRUE(pool.Allocate(2, &again));
  EXPECT_THAT(again, ElementsAre(3, 1));
}

TEST(BlockPoolTest, SkipsBlocksThatAreNotInUse) {
  BlockPool pool(4);
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool.Allocate(2, &blocks));
  EXPECT_TRUE(pool.Release(0, false));
  for (const int32_t block : {0, 3, -1, 4}) {
    EXPECT_FALSE(pool.Release(block, false));
    EXPECT_FALSE(pool.Release(block, true));
  }
  EXPECT_EQ(pool.used(), 1);
  std::vector<int32_t> rest;
  ASSERT_TRUE(pool.Allocate(3, &rest));
  EXPECT_EQ(std::set<int32_t>(rest.begin(), rest.end()),
            (std::set<int32_t>{0, 2, 3}));
}

TEST(BlockPoolTest, ASharedBlockIsFreeWhenItsLastHolderIsGone) {
  BlockPool pool(2);
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool.Allocate(1, &blocks));
  pool.Hold(0);
  EXPECT_EQ(pool.holders(0), 2);
  EXPECT_EQ(pool.used(), 1);
  EXPECT_FALSE(pool.Release(0, false));
  EXPECT_EQ(pool.used(), 1);
  EXPECT_TRUE(pool.Release(0, false));
  EXPECT_EQ(pool.used(), 0);
}

TEST(BlockPoolTest, AFreeBlockCannotBeShared) {
  BlockPool pool(2);
  pool.Hold(1);
  EXPECT_EQ(pool.holders(1), 0);
  EXPECT_EQ(pool.used(), 0);
}

TEST(BlockPoolTest, EvictsWhatWasLetGoLongestAgo) {
  std::vector<int32_t> evicted;
  BlockPool pool(5, [&evicted](int32_t block) { evicted.push_back(block); });
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool.Allocate(4, &blocks));
  for (const int32_t block : {2, 0, 3, 1}) {
    EXPECT_FALSE(pool.Release(block, true));
  }
  EXPECT_EQ(pool.used(), 0);
  EXPECT_EQ(pool.cached(), 4);
  EXPECT_EQ(pool.free(), 5);
  // Held again, and so the last to go.
  pool.Hold(2);
  EXPECT_EQ(pool.used(), 1);
  EXPECT_EQ(pool.cached(), 3);
  EXPECT_FALSE(pool.Release(2, true));
  std::vector<int32_t> more;
  EXPECT_FALSE(pool.Allocate(6, &more));
  EXPECT_THAT(evicted, IsEmpty());
  ASSERT_TRUE(pool.Allocate(4, &more));
  EXPECT_THAT(more, ElementsAre(4, 0, 3, 1));
  EXPECT_THAT(evicted, ElementsAre(0, 3, 1));
  EXPECT_EQ(pool.cached(), 1);
  EXPECT_EQ(pool.free(), 1);
}

TEST(BlockPoolTest, ADiscardedBlockIsFree) {
  std::vector<int32_t> evicted;
  BlockPool pool(2, [&evicted](int32_t block) { evicted.push_back(block); });
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool.Allocate(2, &blocks));
  pool.Release(1, true);
  pool.Discard(1);
  EXPECT_EQ(pool.cached(), 0);
  EXPECT_EQ(pool.used(), 1);
  // Neither a held one nor a free one is.
  pool.Discard(0);
  pool.Discard(1);
  EXPECT_EQ(pool.used(), 1);
  ASSERT_TRUE(pool.Allocate(1, &blocks));
  EXPECT_FALSE(pool.Allocate(1, &blocks));
  EXPECT_THAT(evicted, IsEmpty());
}

// No block is ever held twice, and none is lost.
TEST(BlockPoolTest, RandomUseKeepsEveryBlockHeldOnce) {
  constexpr int kBlocks = 64;
  BlockPool pool(kBlocks);
  std::mt19937 random(7);
  std::vector<std::vector<int32_t>> holders(10);
  for (int step = 0; step < 5000; ++step) {
    auto& holder = holders[random() % holders.size()];
    if (random() % 2 == 0) {
      const auto count = static_cast<int32_t>(random() % 12);
      const size_t held = holder.size();
      const bool fits = count <= pool.free();
      ASSERT_EQ(pool.Allocate(count, &holder), fits);
      ASSERT_EQ(holder.size(), held + (fits ? static_cast<size_t>(count) : 0));
    } else {
      const size_t kept = holder.empty() ? 0 : random() % holder.size();
      while (holder.size() > kept) {
        ASSERT_TRUE(pool.Release(holder.back(), false));
        holder.pop_back();
      }
    }
    std::multiset<int32_t> held;
    for (const auto& blocks : holders) {
      held.insert(blocks.begin(), blocks.end());
    }
    ASSERT_EQ(std::set<int32_t>(held.begin(), held.end()).size(), held.size());
    ASSERT_EQ(static_cast<size_t>(pool.used()), held.size());
  }
}

}  // namespace
}  // namespace specwire
