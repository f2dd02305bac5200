// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/suffix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Tokens = std::vector<int32_t>;

std::unique_ptr<SuffixDrafter> MakeDrafter(const SuffixOptions& options = {
                                               .min_survival = 0}) {
  auto drafter = SuffixDrafter::Create(options);
  EXPECT_TRUE(drafter.ok()) << drafter.status();
  return *std::move(drafter);
}

DraftSequenceParams Params(int prompt_length, const std::string& salt = "") {
  DraftSequenceParams params;
  params.sampling.temperature = 0;
  params.context.prompt_length = prompt_length;
  params.tenant_salt = salt;
  return params;
}

DraftRun Propose(DraftSequence* sequence,
                 const Tokens& path,
                 const DraftLimits& limits) {
  auto run = sequence->Propose(path, limits);
  EXPECT_TRUE(run.ok()) << run.status();
  return *std::move(run);
}

// One sequence that generates `tokens` behind `prompt`, and ends.
void Generate(SuffixDrafter* drafter,
              const Tokens& prompt,
              const Tokens& tokens,
              const std::string& salt = "") {
  const auto sequence =
      drafter->NewSequence(Params(static_cast<int>(prompt.size()), salt));
  Tokens path = prompt;
  for (const int32_t token : tokens) {
    path.push_back(token);
    Propose(sequence.get(), path, {4});
  }
}

TEST(SuffixDrafterTest, ProposesWhatCameNextMostOften) {
  const auto drafter = MakeDrafter();
  const auto sequence = drafter->NewSequence(Params(1));
  const Tokens path = {1, 2, 3, 9, 1, 2, 4, 8, 1, 2, 3, 7, 1, 2};
  const DraftRun run = Propose(sequence.get(), path, {2});
  ASSERT_EQ(run.tokens.size(), 2u);
  EXPECT_EQ(run.tokens[0], 3);
  // Equally often 9 and 7, and 7 is the later one.
  EXPECT_EQ(run.tokens[1], 7);
  EXPECT_THAT(run.q, IsEmpty());
  EXPECT_FALSE(run.more);
}

TEST(SuffixDrafterTest, TheLongestMatchDecides) {
  const auto drafter = MakeDrafter();
  const auto sequence = drafter->NewSequence(Params(1));
  // 4 follows 2 more often, but not behind 5, 1.
  const Tokens path = {5, 1, 2, 3, 1, 2, 4, 6, 2, 4, 7, 2, 4, 5, 1, 2};
  EXPECT_THAT(Propose(sequence.get(), path, {1}).tokens, ElementsAre(3));
}

TEST(SuffixDrafterTest, ALoopGoesOnAsLongAsAsked) {
  const auto drafter = MakeDrafter();
  const auto sequence = drafter->NewSequence(Params(1));
  const Tokens path = {1, 2, 3, 1, 2, 3, 1};
  EXPECT_THAT(Propose(sequence.get(), path, {8}).tokens,
              ElementsAre(2, 3, 1, 2, 3, 1, 2, 3));
}

TEST(SuffixDrafterTest, SurvivalNeverRisesAndEndsRuns) {
  const auto drafter = MakeDrafter();
  const auto sequence = drafter->NewSequence(Params(1));
  const Tokens path = {1, 2, 3, 4, 5, 6, 1, 2};
  const DraftRun all = Propose(sequence.get(), path, {6, 0});
  ASSERT_EQ(all.tokens.size(), 6u);
  ASSERT_EQ(all.survival.size(), 6u);
  EXPECT_GT(all.survival.back(), 0);
  EXPECT_LE(all.survival.front(), 1);
  for (size_t i = 1; i < 6; ++i) {
    EXPECT_LE(all.survival[i], all.survival[i - 1]);
  }
  for (size_t size = 0; size < 6; ++size) {
    // Just more than that of the token behind.
    const float least = all.survival[size] * 1.001f;
    const auto again = MakeDrafter()->NewSequence(Params(1));
    EXPECT_EQ(Propose(again.get(), path, {6, least}).tokens.size(), size);
  }
}

TEST(SuffixDrafterTest, ItsOwnLeastSurvivalHoldsToo) {
  const auto drafter = MakeDrafter({.min_survival = .5f});
  const auto sequence = drafter->NewSequence(Params(1));
  const DraftRun run = Propose(sequence.get(), {1, 2, 3, 4, 1}, {4});
  for (const float survival : run.survival) EXPECT_GE(survival, .5f);
  EXPECT_LT(run.tokens.size(), 4u);
}

// By the definition: counts in the first `settled` tokens, contexts of all.
Tokens ProposeByDefinition(Tokens path, size_t settled, int max_tokens) {
  const Tokens counted(path.begin(),
                       path.begin() + static_cast<std::ptrdiff_t>(settled));
  Tokens proposal;
  for (int i = 0; i < max_tokens; ++i) {
    const size_t longest = std::min<size_t>(SuffixTrie::kDepth, path.size());
    std::map<int32_t, std::pair<int, size_t>> seen;
    for (size_t n = longest + 1; n-- > 0 && seen.empty();) {
      for (size_t at = n; at < counted.size(); ++at) {
        if (!std::equal(
                path.end() - static_cast<std::ptrdiff_t>(n),
                path.end(),
                counted.begin() + static_cast<std::ptrdiff_t>(at - n))) {
          continue;
        }
        ++seen[counted[at]].first;
        seen[counted[at]].second = at;
      }
    }
    if (seen.empty()) break;
    proposal.push_back(std::max_element(seen.begin(),
                                        seen.end(),
                                        [](const auto& a, const auto& b) {
                                          return a.second < b.second;
                                        })
                           ->first);
    path.push_back(proposal.back());
  }
  return proposal;
}

// The paths of a drafter that works ahead, is right or wrong, and now and then
// is given another path altogether.
TEST(SuffixDrafterTest, AgreesWithItsDefinitionOnRandomPaths) {
  std::mt19937 random(1);
  const auto below = [&random](size_t n) {
    return static_cast<int>(random() % n);
  };
  for (int round = 0; round < 60; ++round) {
    const auto drafter =
        MakeDrafter({.max_store_tokens = 0, .min_survival = 0});
    const auto sequence = drafter->NewSequence(Params(below(5)));
    const size_t vocabulary = 1 + random() % 5;
    Tokens path = {0};
    size_t settled = 0;
    Tokens expected;
    for (int step = 0; step < 40; ++step) {
      const Tokens before = expected;
      const int max_tokens = 1 + below(6);
      const bool follows = path.size() <= before.size() &&
                           std::equal(path.begin(), path.end(), before.begin());
      if (!follows || path.size() < settled) settled = path.size();
      const Tokens tokens = Propose(sequence.get(), path, {max_tokens}).tokens;
      ASSERT_EQ(tokens, ProposeByDefinition(path, settled, max_tokens))
          << "round " << round << ", step " << step;
      expected = path;
      expected.insert(expected.end(), tokens.begin(), tokens.end());
      switch (below(8)) {
        case 0:
        case 1:
          // Nothing is known of the proposal yet.
          path = expected;
          break;
        case 2:
          // Another path.
          path.resize(1 + random() % path.size());
          path.push_back(below(vocabulary));
          break;
        case 3:
          // It was cut, but not behind what is settled.
          path = expected;
          path.resize(std::max(settled, path.size() - 1));
          break;
        default:
          // A part of it was right.
          path.insert(path.end(),
                      tokens.begin(),
                      tokens.begin() + below(tokens.size() + 1));
          path.push_back(below(vocabulary));
      }
    }
  }
}

TEST(SuffixDrafterTest, ALongTailIsSettledInTime) {
  const auto drafter = MakeDrafter({.max_store_tokens = 0, .min_survival = 0});
  const auto sequence = drafter->NewSuffixSequence(Params(2));
  Tokens path = {1, 2, 1, 2};
  for (int i = 0; i < 40; ++i) {
    const DraftRun run = Propose(sequence.get(), path, {16});
    ASSERT_EQ(run.tokens.size(), 16u);
    EXPECT_LE(path.size() - sequence->settled(), SuffixSequence::kMaxTail);
    path.insert(path.end(), run.tokens.begin(), run.tokens.end());
  }
  EXPECT_GT(sequence->settled(), 300u);
}

TEST(SuffixDrafterTest, KnowsWhatOthersGenerated) {
  const auto drafter = MakeDrafter();
  Generate(drafter.get(), {1, 2, 3}, {10, 11, 12, 13, 14, 15});
  const auto sequence = drafter->NewSequence(Params(3));
  EXPECT_THAT(Propose(sequence.get(), {5, 6, 7, 10, 11}, {3}).tokens,
              ElementsAre(12, 13, 14));
}

TEST(SuffixDrafterTest, WhatIsInThePathIsNearerThanTheStore) {
  const auto drafter = MakeDrafter();
  Generate(drafter.get(), {1, 2, 3}, {10, 11, 12, 13});
  const auto sequence = drafter->NewSequence(Params(3));
  EXPECT_THAT(Propose(sequence.get(), {10, 11, 20, 21, 10, 11}, {1}).tokens,
              ElementsAre(20));
}

TEST(SuffixDrafterTest, ALiveSequenceLearnsOfThoseThatEndMeanwhile) {
  const auto drafter = MakeDrafter();
  const auto sequence = drafter->NewSequence(Params(3));
  Propose(sequence.get(), {5, 6, 7, 10}, {3});
  Generate(drafter.get(), {1, 2, 3}, {10, 11, 12, 13, 14, 15});
  EXPECT_THAT(Propose(sequence.get(), {5, 6, 7, 10, 11}, {3}).tokens,
              ElementsAre(12, 13, 14));
}

TEST(SuffixDrafterTest, NeverTellsATenantOfAnother) {
  const auto drafter = MakeDrafter();
  Generate(drafter.get(), {1, 2, 3}, {10, 11, 12, 13, 14, 15}, "a");
  for (const std::string salt : {"", "b", "aa"}) {
    const auto sequence = drafter->NewSequence(Params(3, salt));
    for (const int32_t token :
         Propose(sequence.get(), {5, 6, 7, 10, 11}, {8}).tokens) {
      EXPECT_THAT(token, ::testing::AnyOf(5, 6, 7, 10, 11));
    }
  }
}

TEST(SuffixDrafterTest, KeepsCompletionsNotPrompts) {
  const auto drafter = MakeDrafter();
  Tokens prompt(100);
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<int32_t>(i);
  }
  Generate(drafter.get(), prompt, {200, 201, 202});
  EXPECT_EQ(drafter->num_store_tokens(), 3 + SuffixTrie::kDepth);
  // A sequence that generated nothing leaves nothing.
  Generate(drafter.get(), prompt, {});
  Propose(drafter->NewSequence(Params(100)).get(), prompt, {4});
  EXPECT_EQ(drafter->num_store_tokens(), 3 + SuffixTrie::kDepth);
}

TEST(SuffixDrafterTest, KeepsNothingThatWasOnlyProposed) {
  const auto drafter = MakeDrafter();
  {
    const auto sequence = drafter->NewSequence(Params(4));
    Tokens path = {1, 2, 1, 2, 1};
    for (int i = 0; i < 5; ++i) {
      const DraftRun run = Propose(sequence.get(), path, {4});
      path.insert(path.end(), run.tokens.begin(), run.tokens.end());
    }
  }
  EXPECT_EQ(drafter->num_store_tokens(), 5);
}

TEST(SuffixDrafterTest, TheStoreIsBounded) {
  const auto drafter =
      MakeDrafter({.max_store_tokens = 500, .min_survival = 0});
  for (int i = 0; i < 100; ++i) {
    Generate(drafter.get(),
             {1, 2, 3},
             Tokens(static_cast<size_t>(1 + i), 100 + i),
             std::string(static_cast<size_t>(i % 3), 'x'));
    EXPECT_LE(drafter->num_store_tokens(), 500);
  }
  const auto none = MakeDrafter({.max_store_tokens = 0});
  Generate(none.get(), {1, 2, 3}, {4, 5, 6});
  EXPECT_EQ(none->num_store_tokens(), 0);
}

// What others with the same seed drew was drawn by the same noise.
TEST(SuffixDrafterTest, UnderTheRatioRuleItIsByItself) {
  const auto drafter = MakeDrafter();
  DraftSequenceParams params = Params(3);
  params.rule = AcceptanceRule::kRatio;
  const Tokens path = {5, 6, 7, 10, 11};
  const DraftRun alone = Propose(drafter->NewSequence(params).get(), path, {4});
  EXPECT_EQ(drafter->num_store_tokens(), 0);
  for (int i = 0; i < 50; ++i) {
    Generate(drafter.get(), {1, 2, 3}, {10, 11, 12, 13, 14, 15});
  }
  const DraftRun among = Propose(drafter->NewSequence(params).get(), path, {4});
  EXPECT_EQ(among.tokens, alone.tokens);
  EXPECT_EQ(among.survival, alone.survival);
}

// A made-up target that repeats itself, with a share of tokens of its own.
Tokens Babble(double repeats, size_t size, std::mt19937* random) {
  Tokens text = {1, 2, 3, 4};
  size_t from = 0;
  while (text.size() < size) {
    if (std::bernoulli_distribution(repeats)(*random)) {
      text.push_back(text[++from % text.size()]);
    } else {
      text.push_back(static_cast<int32_t>((*random)() % 300));
      from = (*random)() % text.size();
    }
  }
  return text;
}

TEST(SuffixDrafterTest, EstimatesBecomeHonest) {
  std::mt19937 random(1);
  // From texts that are easier to those that are harder than usual.
  for (const double repeats : {.95, .8, .5}) {
    const auto drafter =
        MakeDrafter({.max_store_tokens = 0, .min_survival = 0});
    double estimated = 0;
    double right = 0;
    for (int text_number = 0; text_number < 40; ++text_number) {
      const Tokens text = Babble(repeats, 400, &random);
      const auto sequence = drafter->NewSequence(Params(4));
      for (size_t at = 5; at < text.size();) {
        const DraftRun run =
            Propose(sequence.get(),
                    Tokens(text.begin(),
                           text.begin() + static_cast<std::ptrdiff_t>(at)),
                    {4});
        size_t accepted = 0;
        while (accepted < run.tokens.size() && at + accepted < text.size() &&
               run.tokens[accepted] == text[at + accepted]) {
          ++accepted;
        }
        if (text_number >= 10) {
          right += static_cast<double>(accepted);
          for (const float survival : run.survival) {
            estimated += static_cast<double>(survival);
          }
        }
        at += accepted + 1;
      }
    }
    EXPECT_NEAR(estimated / right, 1, .15) << repeats;
  }
}

TEST(SuffixDrafterTest, SequencesMayBeOnSeveralThreads) {
  const auto drafter =
      MakeDrafter({.max_store_tokens = 2000, .min_survival = 0});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&drafter, thread] {
      std::mt19937 random(static_cast<unsigned>(thread));
      for (int i = 0; i < 30; ++i) {
        Generate(drafter.get(),
                 {1, 2, 3},
                 Babble(.7, 60, &random),
                 thread % 2 == 0 ? "even" : "odd");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(drafter->num_store_tokens(), 0);
  EXPECT_LE(drafter->num_store_tokens(), 2000);
}

TEST(SuffixDrafterTest, RefusesBadOptionsNamingThem) {
  const auto why = [](const SuffixOptions& options) {
    return std::string(SuffixDrafter::Create(options).status().message());
  };
  EXPECT_THAT(why({.max_store_tokens = -1}),
              HasSubstr("max_store_tokens must be in [0, 16777216], got -1"));
  EXPECT_THAT(why({.max_store_tokens = (1 << 24) + 1}),
              HasSubstr("max_store_tokens"));
  EXPECT_THAT(why({.min_survival = -.1f}),
              HasSubstr("min_survival must be in [0, 1)"));
  EXPECT_THAT(why({.min_survival = 1}), HasSubstr("got 1"));
}

TEST(SuffixDrafterTest, ServesAnyVocabulary) {
  const auto drafter = MakeDrafter();
  EXPECT_EQ(drafter->name(), "suffix");
  EXPECT_EQ(drafter->vocabulary_fingerprint(), "");
  EXPECT_EQ(drafter->model_digest(), "");
  EXPECT_EQ(drafter->max_model_len(), 0);
}

}  // namespace
}  // namespace specwire
