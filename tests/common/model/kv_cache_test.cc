// SPDX-License-Identifier: Apache-2.0
#include "common/model/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Tokens that all differ.
std::vector<int32_t> Some(int count, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Lets the sequence grow as an engine does.
void Grow(PagedSequence* sequence, const std::vector<int32_t>& tokens) {
  sequence->Offer();
  ASSERT_TRUE(sequence->Reserve(static_cast<int>(tokens.size())));
  sequence->Advance(tokens);
}

TEST(PagedSequenceTest, TakesBlocksAsItGrows) {
  KvCache cache(4, nullptr);
  auto sequence = cache.NewSequence();
  EXPECT_EQ(cache.pool().used(), 0);
  EXPECT_EQ(sequence->BlocksFor(0), 0);
  EXPECT_EQ(sequence->BlocksFor(16), 1);
  EXPECT_EQ(sequence->BlocksFor(17), 2);
  ASSERT_TRUE(sequence->Reserve(17));
  EXPECT_EQ(sequence->length(), 0);
  sequence->Advance(Some(17));
  EXPECT_EQ(sequence->length(), 17);
  EXPECT_EQ(sequence->BlocksFor(15), 0);
  EXPECT_EQ(sequence->BlocksFor(16), 1);
  EXPECT_EQ(cache.pool().used(), 2);
}

TEST(PagedSequenceTest, TruncateReturnsWholeBlocksAtOnce) {
  KvCache cache(4, nullptr);
  auto sequence = cache.NewSequence();
  ASSERT_TRUE(sequence->Reserve(50));
  sequence->Advance(Some(50));
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
  sequence->Advance(Some(3));
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
  first->Advance(Some(10));
  EXPECT_FALSE(second->Reserve(17));
  EXPECT_THAT(second->blocks(), IsEmpty());
  EXPECT_EQ(cache.pool().used(), 1);
  EXPECT_TRUE(second->Reserve(16));
}

TEST(PagedSequenceTest, UnreserveKeepsWhatCounts) {
  KvCache cache(4, nullptr);
  auto sequence = cache.NewSequence();
  ASSERT_TRUE(sequence->Reserve(10));
  sequence->Advance(Some(10));
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

TEST(PagedSequenceTest, WhoNeverAskedSharesNothing) {
  KvCache cache(8, nullptr);
  auto first = cache.NewSequence();
  Grow(first.get(), Some(40));
  first.reset();
  EXPECT_EQ(cache.pool().cached(), 0);
  auto second = cache.NewSequence();
  EXPECT_EQ(second->ReusePrefix("", Some(40)), 0);
}

TEST(PagedSequenceTest, TakesWholeBlocksAndLeavesOneTokenToCompute) {
  KvCache cache(8, nullptr);
  auto first = cache.NewSequence();
  EXPECT_EQ(first->ReusePrefix("a", Some(40)), 0);
  Grow(first.get(), Some(40));
  // Not yet: rejected draft tokens may be among them.
  EXPECT_EQ(cache.NewSequence()->ReusePrefix("a", Some(40)), 0);
  first.reset();
  EXPECT_EQ(cache.pool().used(), 0);
  EXPECT_EQ(cache.pool().cached(), 2);
  for (const auto& [tokens, taken] : std::vector<std::pair<int, int>>{
           {0, 0}, {16, 0}, {17, 16}, {32, 16}, {33, 32}, {60, 32}}) {
    auto next = cache.NewSequence();
    EXPECT_EQ(next->ReusePrefix("a", Some(tokens)), taken);
    EXPECT_EQ(next->length(), taken);
    EXPECT_EQ(cache.pool().used(), taken / 16);
  }
  EXPECT_EQ(cache.NewSequence()->ReusePrefix("b", Some(40)), 0);
  EXPECT_EQ(cache.NewSequence()->ReusePrefix("", Some(40)), 0);
  EXPECT_EQ(cache.NewSequence()->ReusePrefix("a", Some(40, 1)), 0);
}

TEST(PagedSequenceTest, TwoThatComputedTheSameEndUpWithOneCopy) {
  KvCache cache(8, nullptr);
  auto first = cache.NewSequence();
  auto second = cache.NewSequence();
  for (PagedSequence* sequence : {first.get(), second.get()}) {
    sequence->ReusePrefix("a", Some(40));
    Grow(sequence, Some(40));
  }
  EXPECT_EQ(cache.pool().used(), 6);
  for (PagedSequence* sequence : {first.get(), second.get()}) {
    Grow(sequence, Some(1));
  }
  EXPECT_EQ(cache.pool().used(), 4);
  EXPECT_EQ(first->blocks()[0], second->blocks()[0]);
  EXPECT_EQ(first->blocks()[1], second->blocks()[1]);
  EXPECT_NE(first->blocks()[2], second->blocks()[2]);
}

TEST(PagedSequenceTest, TruncateGivesUpAWholeBlockThatAnotherHolds) {
  KvCache cache(8, nullptr);
  auto first = cache.NewSequence();
  first->ReusePrefix("a", {});
  Grow(first.get(), Some(40));
  first->Offer();
  auto second = cache.NewSequence();
  ASSERT_EQ(second->ReusePrefix("a", Some(40)), 32);
  second->Truncate(20);
  EXPECT_EQ(second->length(), 16);
  // The first one's is whole.
  EXPECT_EQ(cache.pool().used(), 3);
  second.reset();
  // Now it holds the block alone.
  first->Truncate(20);
  EXPECT_EQ(first->length(), 20);
  EXPECT_EQ(cache.pool().used(), 2);
  EXPECT_EQ(cache.pool().cached(), 0);
  auto third = cache.NewSequence();
  EXPECT_EQ(third->ReusePrefix("a", Some(40)), 16);
}

TEST(PagedSequenceTest, CuttingABlockFreesWhatStoodOnIt) {
  KvCache cache(8, nullptr);
  auto first = cache.NewSequence();
  first->ReusePrefix("a", {});
  Grow(first.get(), Some(80));
  first->Offer();
  first->Truncate(48);
  EXPECT_EQ(cache.pool().cached(), 2);
  first->Truncate(40);
  // Without the third block nobody could find the fourth and the fifth.
  EXPECT_EQ(cache.pool().cached(), 0);
  EXPECT_EQ(cache.pool().used(), 3);
  EXPECT_EQ(cache.index().size(), 2u);
}

TEST(PagedSequenceTest, ReusePrefixCountsOnce) {
  KvCache cache(8, nullptr);
  auto first = cache.NewSequence();
  first->ReusePrefix("a", {});
  Grow(first.get(), Some(40));
  first.reset();
  auto second = cache.NewSequence();
  Grow(second.get(), Some(3));
  EXPECT_EQ(second->ReusePrefix("a", Some(40)), 3);
  auto third = cache.NewSequence();
  EXPECT_EQ(third->ReusePrefix("b", Some(40)), 0);
  EXPECT_EQ(third->ReusePrefix("a", Some(40)), 0);
}

TEST(KvCacheTest, WhatIsCachedIsReleasedWhenItIsEvicted) {
  std::vector<std::pair<int32_t, int>> released;
  KvCache cache(3, [&released](int32_t block, int slot) {
    released.emplace_back(block, slot);
  });
  auto first = cache.NewSequence();
  first->ReusePrefix("a", {});
  Grow(first.get(), Some(33));
  first.reset();
  EXPECT_THAT(released, ElementsAre(Pair(2, 0)));
  released.clear();
  auto second = cache.NewSequence();
  Grow(second.get(), Some(32, 100));
  // The deeper one goes first.
  EXPECT_THAT(released, ElementsAre(Pair(1, 0)));
  EXPECT_EQ(cache.pool().cached(), 1);
  EXPECT_EQ(cache.NewSequence()->ReusePrefix("a", Some(33)), 16);
}

TEST(KvCacheTest, ReleasesEveryPositionThatNoLongerCounts) {
  std::vector<std::pair<int32_t, int>> released;
  KvCache cache(4, [&released](int32_t block, int slot) {
    released.emplace_back(block, slot);
  });
  auto sequence = cache.NewSequence();
  ASSERT_TRUE(sequence->Reserve(40));
  sequence->Advance(Some(40));
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
