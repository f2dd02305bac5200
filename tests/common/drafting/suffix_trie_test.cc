// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/suffix_trie.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace specwire {
namespace {

using Tokens = std::vector<int32_t>;

Tokens RandomTokens(size_t size, int vocabulary, std::mt19937* random) {
  Tokens tokens(size);
  for (int32_t& token : tokens) {
    token =
        static_cast<int32_t>((*random)() % static_cast<unsigned>(vocabulary));
  }
  return tokens;
}

// By the definition: what came next in `text`, up to its end, behind the last
// `depth` tokens of `context`.
std::optional<SuffixTrie::Next> CountNext(const Tokens& text,
                                          absl::Span<const int32_t> context,
                                          size_t depth) {
  struct Seen {
    int32_t count = 0;
    size_t last = 0;
  };
  std::map<int32_t, Seen> seen;
  const auto suffix = context.last(depth);
  SuffixTrie::Next next;
  for (size_t at = depth; at < text.size(); ++at) {
    if (!std::equal(suffix.begin(),
                    suffix.end(),
                    text.begin() + static_cast<std::ptrdiff_t>(at - depth))) {
      continue;
    }
    ++seen[text[at]].count;
    seen[text[at]].last = at;
    ++next.total;
  }
  if (seen.empty()) return std::nullopt;
  const auto best = std::max_element(
      seen.begin(), seen.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second.count, a.second.last) <
               std::pair(b.second.count, b.second.last);
      });
  next.token = best->first;
  next.count = best->second.count;
  return next;
}

void ExpectCounts(const SuffixTrie& trie,
                  const SuffixTrie::Place& place,
                  const Tokens& text,
                  absl::Span<const int32_t> context) {
  int longest = -1;
  for (size_t depth = 0;
       depth <= std::min<size_t>(context.size(), SuffixTrie::kDepth);
       ++depth) {
    const auto expected = CountNext(text, context, depth);
    std::optional<SuffixTrie::Next> next;
    if (static_cast<int>(depth) <= place.depth) {
      next = trie.MostFrequent(place, static_cast<int>(depth));
    }
    ASSERT_EQ(next.has_value(), expected.has_value()) << "depth " << depth;
    if (!expected.has_value()) continue;
    longest = static_cast<int>(depth);
    EXPECT_EQ(next->token, expected->token) << "depth " << depth;
    EXPECT_EQ(next->count, expected->count) << "depth " << depth;
    EXPECT_EQ(next->total, expected->total) << "depth " << depth;
  }
  EXPECT_EQ(trie.LongestMatch(place), longest);
}

TEST(SuffixTrieTest, CountsAsTheDefinitionSays) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const int vocabulary = 1 + round % 6;
    const Tokens text = RandomTokens(60, vocabulary, &random);
    SuffixTrie trie;
    SuffixTrie::Place place;
    Tokens added;
    for (const int32_t token : text) {
      ExpectCounts(trie, place, added, added);
      trie.Add(&place, token);
      added.push_back(token);
      if (HasFailure()) FAIL() << "round " << round;
    }
    ExpectCounts(trie, place, added, added);
    EXPECT_EQ(trie.num_tokens(), text.size());
  }
}

TEST(SuffixTrieTest, FollowsTokensThatAreNotAdded) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    const Tokens text = RandomTokens(80, 3, &random);
    SuffixTrie trie;
    SuffixTrie::Place place;
    for (const int32_t token : text) trie.Add(&place, token);
    Tokens context = text;
    for (const int32_t token : RandomTokens(12, 3, &random)) {
      context.push_back(token);
      trie.Move(&place, token);
      ExpectCounts(trie, place, text, context);
      // The same as from nowhere.
      EXPECT_EQ(trie.Find(context).nodes, place.nodes);
    }
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(SuffixTrieTest, TellsHowLongAMatchIsBeyondItsDepth) {
  Tokens text(40);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(i);
  SuffixTrie trie;
  SuffixTrie::Place place;
  for (const int32_t token : text) trie.Add(&place, token);
  EXPECT_EQ(place.match_length, 0);
  for (int32_t i = 0; i < 30; ++i) {
    trie.Add(&place, i);
    EXPECT_EQ(place.match_length, i + 1);
  }
  trie.Add(&place, 1000);
  EXPECT_EQ(place.match_length, 0);
}

TEST(SuffixTrieTest, AnEmptyOneKnowsNothing) {
  const SuffixTrie trie;
  const SuffixTrie::Place place = trie.Find({1, 2, 3});
  EXPECT_EQ(trie.LongestMatch(place), -1);
  EXPECT_EQ(trie.num_tokens(), 0u);
}

TEST(SuffixTrieTest, ItsMemoryIsBounded) {
  std::mt19937 random(3);
  for (const int vocabulary : {2, 50, 50000}) {
    SuffixTrie trie;
    SuffixTrie::Place place;
    constexpr size_t kSize = 20000;
    for (const int32_t token : RandomTokens(kSize, vocabulary, &random)) {
      trie.Add(&place, token);
    }
    EXPECT_LE(trie.num_bytes(), 400 * kSize) << vocabulary;
  }
}

}  // namespace
}  // namespace specwire
