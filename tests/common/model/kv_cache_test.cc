// SPDX-License-Identifier: Apache-2.0
#include "common/model/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(PagedSequenceTest, TakesBlocksAsItGrows) {
  KvCache cache(4, nullptr);
  auto sequence = cache.NewSequence();
  EXPECT_EQ(cache.pool().used(), 0);
  EXPECT_EQ(sequence->BlocksFor(0), 0);
  EXPECT_EQ(sequence->BlocksFor(16), 1);
  EXPECT_EQ(sequence->BlocksFor(17), 2);
  ASSERT_TRUE(sequence->Reserve(17));
  EXPECT_EQ(sequence->length(), 0);
  sequence->Advance(17);
  EXPECT_EQ(sequence->length(), 17);
  EXPECT_EQ(sequence->BlocksFor(15), 0);
  EXPECT_EQ(sequence->BlocksFor(16), 1);
  EXPECT_EQ(cache.pool().used(), 2);
}

TEST(PagedSequenceTest, TruncateReturnsWholeBlocksAtOnce) {
  KvCache cache(4, nullptr);
  auto sequence = cache.NewSequence();
  ASSERT_TRUE(sequence->Reserve(50));
  sequence->Advance(50);
  EXPECT_EQ(cache.pool().used(), 4);
  sequence->Truncate(33);
  EXPECT_EQ(cache.pool().used(), 3);
  sequence->Truncate(32);
  EXPECT_EQ(cache.pool().used(), 2);
  sequence->Truncate(1);
  EXPECT_EQ(cache.pool().used(), 1);
  EXPECT_EQ(sequence->length(), 1);
  sequence->Truncate(0);
  EXPECT_EQ(cache.pool().used(), 0);
}

TEST(PagedSequenceTest, TruncateNeverLengthens) {
  KvCache cache(4, nullptr);
  auto sequence = cache.NewSequence();
  ASSERT_TRUE(sequence->Reserve(3));
  sequence->Advance(3);
  sequence->Truncate(40);
  EXPECT_EQ(sequence->length(), 3);
  sequence->Truncate(-1);
  EXPECT_EQ(sequence->length(), 0);
}

TEST(PagedSequenceTest, AFailedReserveChangesNothing) {
  KvCache cache(2, nullptr);
  auto first = cache.NewSequence();
  auto second = cache.NewSequence();
  ASSERT_TRUE(first->Reserve(10));
  first->Advance(10);
  EXPECT_FALSE(second->Reserve(17));
  EXPECT_THAT(second->blocks(), IsEmpty());
  EXPECT_EQ(cache.pool().used(), 1);
  EXPECT_TRUE(second->Reserve(16));
}

TEST(PagedSequenceTest, UnreserveKeepsWhatCounts) {
  KvCache cache(4, nullptr);
  auto sequence = cache.NewSequence();
  ASSERT_TRUE(sequence->Reserve(10));
  sequence->Advance(10);
  ASSERT_TRUE(sequence->Reserve(40));
  EXPECT_EQ(cache.pool().used(), 4);
  sequence->Unreserve();
  EXPECT_EQ(cache.pool().used(), 1);
  EXPECT_EQ(sequence->length(), 10);
}

TEST(PagedSequenceTest, EndingFreesItsBlocks) {
  KvCache cache(4, nullptr);
  auto sequence = cache.NewSequence();
  ASSERT_TRUE(sequence->Reserve(64));
  sequence.reset();
  EXPECT_EQ(cache.pool().used(), 0);
}

TEST(KvCacheTest, ReleasesEveryPositionThatNoLongerCounts) {
  std::vector<std::pair<int32_t, int>> released;
  KvCache cache(4, [&released](int32_t block, int slot) {
    released.emplace_back(block, slot);
  });
  auto sequence = cache.NewSequence();
  ASSERT_TRUE(sequence->Reserve(40));
  sequence->Advance(40);
  EXPECT_THAT(released, IsEmpty());
  sequence->Truncate(21);
  EXPECT_THAT(released, ElementsAre(Pair(2, 0), Pair(1, 5)));
  released.clear();
  sequence->Truncate(16);
  EXPECT_THAT(released, ElementsAre(Pair(1, 0)));
  released.clear();
  sequence.reset();
  EXPECT_THAT(released, ElementsAre(Pair(0, 0)));
}

}  // namespace
}  // namespace specwire
