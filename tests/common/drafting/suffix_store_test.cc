// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/suffix_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace specwire {
namespace {

// Ten tokens that no text of another number has.
std::vector<int32_t> Text(int number, int size = 10) {
  std::vector<int32_t> text;
  for (int i = 0; i < size; ++i) text.push_back(1000 * number + i);
  return text;
}

// Whether the tenant's store says how text `number` goes on.
bool Knows(const SuffixStore& store, const std::string& salt, int number) {
  const SuffixStore::Tenant* const tenant = store.Find(salt);
  if (tenant == nullptr) return false;
  for (const SuffixTrie* trie : {&tenant->newer, &tenant->older}) {
    const SuffixTrie::Place place =
        trie->Find({1000 * number, 1000 * number + 1});
    if (place.depth < 2) continue;
    const auto next = trie->MostFrequent(place, 2);
    if (next.has_value() && next->token == 1000 * number + 2) return true;
  }
  return false;
}

TEST(SuffixStoreTest, KeepsTheLatestTexts) {
  SuffixStore store(100);
  for (int number = 1; number <= 40; ++number) {
    store.Add("salt", Text(number));
    EXPECT_LE(store.num_tokens(), 100u);
    EXPECT_EQ(store.num_tokens(), store.Find("salt")->num_tokens());
    // Half of what fits is always there.
    for (int kept = std::max(1, number - 4); kept <= number; ++kept) {
      EXPECT_TRUE(Knows(store, "salt", kept)) << number << ", " << kept;
    }
    EXPECT_FALSE(Knows(store, "salt", number - 10));
  }
}

TEST(SuffixStoreTest, KeepsTenantsApart) {
  SuffixStore store(1000);
  store.Add("a", Text(1));
  store.Add("b", Text(2));
  EXPECT_TRUE(Knows(store, "a", 1));
  EXPECT_TRUE(Knows(store, "b", 2));
  EXPECT_FALSE(Knows(store, "a", 2));
  EXPECT_FALSE(Knows(store, "b", 1));
  EXPECT_EQ(store.Find(""), nullptr);
}

TEST(SuffixStoreTest, DropsTheTenantThatWasAddedToLeastRecently) {
  SuffixStore store(100);
  for (int number = 0; number < 10; ++number) {
    store.Add(absl::StrCat("tenant ", number), Text(number));
  }
  store.Add("tenant 0", Text(100));
  EXPECT_LE(store.num_tokens(), 100u);
  EXPECT_EQ(store.Find("tenant 1"), nullptr);
  EXPECT_TRUE(Knows(store, "tenant 0", 0));
  EXPECT_TRUE(Knows(store, "tenant 2", 2));
  // However many come.
  for (int number = 0; number < 1000; ++number) {
    store.Add(absl::StrCat("other ", number), Text(number));
    EXPECT_LE(store.num_tokens(), 100u);
  }
}

TEST(SuffixStoreTest, KeepsTheEndOfWhatIsTooLong) {
  SuffixStore store(100);
  store.Add("salt", Text(1, 500));
  EXPECT_EQ(store.num_tokens(), 50u);
  const SuffixTrie& trie = store.Find("salt")->newer;
  EXPECT_EQ(trie.Find({1497, 1498, 1499}).depth, 3);
  EXPECT_EQ(trie.Find({1449}).depth, 0);
}

TEST(SuffixStoreTest, WithoutRoomKeepsNothing) {
  SuffixStore store(0);
  store.Add("salt", Text(1));
  EXPECT_EQ(store.Find("salt"), nullptr);
  EXPECT_EQ(store.num_tokens(), 0u);
}

TEST(SuffixStoreTest, EachChangeHasAVersionOfItsOwn) {
  SuffixStore store(100);
  store.Add("a", Text(1));
  const int64_t first = store.Find("a")->version;
  store.Add("b", Text(2));
  const int64_t second = store.Find("b")->version;
  EXPECT_EQ(store.Find("a")->version, first);
  store.Add("a", Text(3));
  EXPECT_NE(second, first);
  EXPECT_NE(store.Find("a")->version, first);
  EXPECT_NE(store.Find("a")->version, second);
}

}  // namespace
}  // namespace specwire
