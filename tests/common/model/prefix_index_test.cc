// SPDX-License-Identifier: Apache-2.0
#include "common/model/prefix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kNone = PrefixIndex::kNone;

std::vector<int32_t> Removed(PrefixIndex* index, int32_t block) {
  std::vector<int32_t> orphans;
  index->Remove(block, [&](int32_t orphan) { orphans.push_back(orphan); });
  return orphans;
}

TEST(PrefixIndexTest, FindsByParentSaltAndTokens) {
  PrefixIndex index(8);
  EXPECT_EQ(index.Find(kNone, "a", {1, 2}), kNone);
  index.Insert(5, kNone, "a", {1, 2});
  index.Insert(3, 5, "a", {1, 2});
  EXPECT_EQ(index.Find(kNone, "a", {1, 2}), 5);
  EXPECT_EQ(index.Find(5, "a", {1, 2}), 3);
  EXPECT_EQ(index.Find(3, "a", {1, 2}), kNone);
  EXPECT_EQ(index.Find(kNone, "b", {1, 2}), kNone);
  EXPECT_EQ(index.Find(kNone, "", {1, 2}), kNone);
  EXPECT_EQ(index.Find(kNone, "a", {1, 3}), kNone);
  EXPECT_EQ(index.Find(kNone, "a", {1}), kNone);
  EXPECT_EQ(index.size(), 2u);
  EXPECT_TRUE(index.Contains(5));
  EXPECT_FALSE(index.Contains(4));
}

// What is taken does not rest on the hash: all are equal here.
TEST(PrefixIndexTest, EqualHashesAreNoMatch) {
  PrefixIndex index(200,
                    [](size_t, absl::string_view, absl::Span<const int32_t>) {
                      return size_t{7};
                    });
  const auto parent_of = [](int32_t block) {
    return block < 20 ? kNone : block % 20;
  };
  const auto salt_of = [](int32_t block) { return block < 10 ? "a" : "b"; };
  const auto tokens_of = [](int32_t block) {
    return std::vector<int32_t>{block / 20, block < 20 ? block % 10 : 3};
  };
  for (int32_t block = 0; block < 200; ++block) {
    index.Insert(block, parent_of(block), salt_of(block), tokens_of(block));
  }
  for (int32_t block = 20; block < 200; block += 3) {
    EXPECT_THAT(Removed(&index, block), IsEmpty());
  }
  for (int32_t block = 0; block < 200; ++block) {
    const bool removed = block >= 20 && block % 3 == 2;
    EXPECT_EQ(index.Find(parent_of(block), salt_of(block), tokens_of(block)),
              removed ? kNone : block);
  }
  EXPECT_EQ(index.Find(kNone, "c", tokens_of(0)), kNone);
  EXPECT_EQ(index.Find(kNone, "a", {0, 10}), kNone);
  EXPECT_EQ(index.Find(25, "a", tokens_of(20)), kNone);
}

TEST(PrefixIndexTest, OnlyTheRootsSaltCounts) {
  PrefixIndex index(4);
  index.Insert(0, kNone, "a", {1});
  index.Insert(1, 0, "a", {1});
  EXPECT_EQ(index.Find(0, "b", {1}), 1);
}

TEST(PrefixIndexTest, RemovesWhatStandsOnABlock) {
  PrefixIndex index(10);
  index.Insert(0, kNone, "a", {1});
  index.Insert(1, 0, "a", {1});
  index.Insert(2, 0, "a", {2});
  index.Insert(3, 0, "a", {3});
  index.Insert(4, 2, "a", {1});
  index.Insert(5, 4, "a", {1});
  index.Insert(6, 2, "a", {2});
  EXPECT_THAT(Removed(&index, 2), ElementsAre(6, 5, 4));
  EXPECT_EQ(index.size(), 3u);
  EXPECT_EQ(index.Find(0, "a", {2}), kNone);
  EXPECT_EQ(index.Find(0, "a", {1}), 1);
  EXPECT_EQ(index.Find(0, "a", {3}), 3);
  // A number that is used again is another entry.
  index.Insert(2, 0, "a", {9});
  EXPECT_EQ(index.Find(2, "a", {2}), kNone);
  EXPECT_EQ(index.Find(2, "a", {1}), kNone);
  EXPECT_THAT(Removed(&index, 0), ElementsAre(2, 3, 1));
  EXPECT_EQ(index.size(), 0u);
}

TEST(PrefixIndexTest, AnEmptyPoolHasNoEntries) {
  PrefixIndex index(0);
  EXPECT_EQ(index.Find(kNone, "", {1}), kNone);
}

}  // namespace
}  // namespace specwire
