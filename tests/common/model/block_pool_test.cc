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
  pool.Free({1, 3});
  std::vector<int32_t> again;
  ASSERT_TRUE(pool.Allocate(2, &again));
  EXPECT_THAT(again, ElementsAre(3, 1));
}

TEST(BlockPoolTest, SkipsBlocksThatAreNotInUse) {
  BlockPool pool(4);
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool.Allocate(2, &blocks));
  pool.Free({0, 0, 3, -1, 4});
  EXPECT_EQ(pool.used(), 1);
  std::vector<int32_t> rest;
  ASSERT_TRUE(pool.Allocate(3, &rest));
  EXPECT_EQ(std::set<int32_t>(rest.begin(), rest.end()),
            (std::set<int32_t>{0, 2, 3}));
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
      pool.Free(absl::MakeSpan(holder).subspan(kept));
      holder.resize(kept);
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
