// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/ngram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int32_t> Propose(const std::vector<int32_t>& path,
                             int max_tokens,
                             const NgramOptions& options = {}) {
  absl::StatusOr<std::unique_ptr<NgramDrafter>> drafter =
      NgramDrafter::Create(options);
  EXPECT_TRUE(drafter.ok()) << drafter.status();
  absl::StatusOr<DraftRun> run =
      (*drafter)->NewSequence({})->Propose(path, {max_tokens});
  EXPECT_TRUE(run.ok());
  EXPECT_THAT(run->survival, IsEmpty());
  return run->tokens;
}

TEST(NgramDrafterTest, ProposesWhatFollowedTheSameSuffix) {
  EXPECT_THAT(Propose({1, 2, 3, 4, 5, 9, 1, 2}, 3), ElementsAre(3, 4, 5));
}

TEST(NgramDrafterTest, ProposesNothingWithoutAMatch) {
  EXPECT_THAT(Propose({1, 2, 3, 4, 5, 6}, 3), IsEmpty());
}

TEST(NgramDrafterTest, AMatchShorterThanTheLeastDoesNotCount) {
  EXPECT_THAT(Propose({1, 2, 3, 4, 1}, 3), IsEmpty());
  EXPECT_THAT(Propose({1, 2, 3, 4, 1}, 3, {8, 1}), ElementsAre(2, 3, 4));
}

TEST(NgramDrafterTest, TheLongestSuffixWinsOverAMoreRecentOne) {
  // "6 1 2" occurs first, "1 2" alone later.
  EXPECT_THAT(Propose({6, 1, 2, 3, 5, 1, 2, 4, 5, 6, 1, 2}, 1), ElementsAre(3));
}

TEST(NgramDrafterTest, TheMostRecentOfEquallyLongMatchesWins) {
  EXPECT_THAT(Propose({7, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2}, 1), ElementsAre(4));
}

TEST(NgramDrafterTest, MatchesLongerThanTheMostCountAlike) {
  // With at most two tokens the longer context of the first does not count.
  EXPECT_THAT(Propose({6, 1, 2, 3, 5, 1, 2, 4, 5, 6, 1, 2}, 1, {2, 2}),
              ElementsAre(4));
}

TEST(NgramDrafterTest, ProposesAtMostWhatIsAskedFor) {
  EXPECT_THAT(Propose({1, 2, 3, 4, 5, 1, 2}, 1), ElementsAre(3));
}

TEST(NgramDrafterTest, ARepetitionIsContinuedBeyondTheEnd) {
  EXPECT_THAT(Propose({1, 2, 1, 2, 1, 2}, 5), ElementsAre(1, 2, 1, 2, 1));
  EXPECT_THAT(Propose({5, 5, 5}, 4), ElementsAre(5, 5, 5, 5));
}

TEST(NgramDrafterTest, ShortPathsHaveNoMatch) {
  EXPECT_THAT(Propose({1}, 4), IsEmpty());
  EXPECT_THAT(Propose({1, 1}, 4), IsEmpty());
  EXPECT_THAT(Propose({1, 1, 1}, 2), ElementsAre(1, 1));
}

TEST(NgramDrafterTest, ServesAnyVocabulary) {
  absl::StatusOr<std::unique_ptr<NgramDrafter>> drafter =
      NgramDrafter::Create({});
  ASSERT_TRUE(drafter.ok());
  EXPECT_EQ((*drafter)->name(), "ngram");
  EXPECT_EQ((*drafter)->vocabulary_fingerprint(), "");
  EXPECT_EQ((*drafter)->model_digest(), "");
  EXPECT_EQ((*drafter)->max_model_len(), 0);
}

TEST(NgramDrafterTest, RefusesBadOptionsNamingThem) {
  EXPECT_THAT(std::string(NgramDrafter::Create({8, 0}).status().message()),
              HasSubstr("min_ngram must be at least 1, got 0"));
  EXPECT_THAT(std::string(NgramDrafter::Create({2, 3}).status().message()),
              HasSubstr("max_ngram must be at least min_ngram = 3, got 2"));
}

// The same by the definition: for every length from the longest down, look
// back from the end for the suffix.
std::vector<int32_t> ProposeByDefinition(std::vector<int32_t> path,
                                         int max_tokens,
                                         const NgramOptions& options) {
  const int size = static_cast<int>(path.size());
  for (int n = std::min(options.max_ngram, size - 1); n >= options.min_ngram;
       --n) {
    for (int at = size - n - 1; at >= 0; --at) {
      if (std::equal(path.end() - n, path.end(), path.begin() + at)) {
        std::vector<int32_t> proposal;
        for (int i = 0; i < max_tokens; ++i) {
          proposal.push_back(path[static_cast<size_t>(at + n + i)]);
          path.push_back(proposal.back());
        }
        return proposal;
      }
    }
  }
  return {};
}

TEST(NgramDrafterTest, AgreesWithItsDefinitionOnRandomPaths) {
  uint32_t state = 1;
  const auto below = [&state](uint32_t n) {
    state = state * 1664525u + 1013904223u;
    return static_cast<int>((state >> 16) % n);
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<int32_t> path(static_cast<size_t>(1 + below(40)));
    const uint32_t vocabulary = static_cast<uint32_t>(1 + below(4));
    for (int32_t& token : path) {
      token = below(vocabulary);
    }
    const NgramOptions options = {4 + below(5), 1 + below(4)};
    const int max_tokens = 1 + below(6);
    ASSERT_EQ(Propose(path, max_tokens, options),
              ProposeByDefinition(path, max_tokens, options))
        << "round " << round;
  }
}

// The same sequence on a path that is cut and extended, as a drafter's is.
TEST(NgramDrafterTest, AgreesWithItsDefinitionAsThePathChanges) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    const NgramOptions options = {4 + static_cast<int>(random() % 5),
                                  1 + static_cast<int>(random() % 4)};
    const auto drafter = NgramDrafter::Create(options);
    ASSERT_TRUE(drafter.ok());
    const auto sequence = (*drafter)->NewSequence({});
    const unsigned vocabulary = 1 + static_cast<unsigned>(random() % 4);
    std::vector<int32_t> path;
    for (int step = 0; step < 60; ++step) {
      if (!path.empty()) path.resize(path.size() - random() % path.size() / 3);
      for (size_t added = 1 + random() % 8; added > 0; --added) {
        path.push_back(static_cast<int32_t>(random() % vocabulary));
      }
      const int max_tokens = 1 + static_cast<int>(random() % 6);
      const auto run = sequence->Propose(path, {max_tokens});
      ASSERT_TRUE(run.ok());
      ASSERT_EQ(run->tokens, ProposeByDefinition(path, max_tokens, options))
          << "round " << round << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace specwire
