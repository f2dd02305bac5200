// SPDX-License-Identifier: Apache-2.0
#include "common/text/bpe.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace specwire {
namespace {

using Ids = std::vector<int32_t>;

// The definition, word for word and slow.
Ids MergeSlowly(Ids word,
                const std::map<std::pair<int32_t, int32_t>,
                               std::pair<size_t, int32_t>>& rules) {
  while (true) {
    size_t best = word.size();
    size_t best_rank = SIZE_MAX;
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      const auto it = rules.find({word[i], word[i + 1]});
      if (it == rules.end() || it->second.first >= best_rank) continue;
      best_rank = it->second.first;
      best = i;
    }
    if (best == word.size()) return word;
    word[best] = rules.at({word[best], word[best + 1]}).second;
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(BpeTest, MergesAsTheDefinitionSays) {
  std::mt19937 random(7);
  Bpe::Scratch scratch;
  for (int round = 0; round < 2000; ++round) {
    Bpe bpe;
    std::map<std::pair<int32_t, int32_t>, std::pair<size_t, int32_t>> rules;
    const auto pick = [&](int32_t bound) {
      return static_cast<int32_t>(random() % static_cast<uint32_t>(bound));
    };
    for (int i = 0; i < 12; ++i) {
      const std::pair<int32_t, int32_t> pair(pick(6), pick(6));
      const int32_t merged = pick(6);
      // Every other time some rules are equals.
      const auto rank = round % 2 == 0 ? static_cast<uint32_t>(rules.size())
                                       : static_cast<uint32_t>(pick(3));
      EXPECT_EQ(bpe.AddMerge(pair.first, pair.second, merged, rank),
                rules.emplace(pair, std::make_pair(rank, merged)).second);
    }
    Ids word;
    for (int32_t i = pick(30); i > 0; --i) word.push_back(pick(4));
    Ids merged;
    bpe.Merge(word, &scratch, &merged);
    ASSERT_EQ(merged, MergeSlowly(word, rules)) << "round " << round;
  }
}

TEST(BpeTest, TakesLongWords) {
  Bpe bpe;
  // aa, aaaa, ... up to 2^19 letters.
  for (int32_t i = 0; i < 19; ++i) {
    bpe.AddMerge(i, i, i + 1, static_cast<uint32_t>(i));
  }
  Bpe::Scratch scratch;
  Ids merged;
  bpe.Merge(Ids(1'000'000, 0), &scratch, &merged);
  int64_t letters = 0;
  for (const int32_t id : merged) letters += int64_t{1} << id;
  EXPECT_EQ(letters, 1'000'000);
  EXPECT_EQ(merged.front(), 19);
}

}  // namespace
}  // namespace specwire
