// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/processors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "common/sampling/token_counts.h"
#include "gtest/gtest.h"
#include "tests/common/sampling/sampling_test_util.h"

namespace specwire {
namespace {

using Ids = std::vector<int32_t>;

std::vector<float> Applied(const SamplingParams& params,
                           const SequenceContext& context,
                           const std::vector<float>& logits,
                           const Ids& settled,
                           const Ids& run = {}) {
  LogitProcessors processors(params, context);
  const absl::Span<const float> row =
      processors.Apply(logits, {.settled = settled, .run = run});
  return std::vector<float>(row.begin(), row.end());
}

TEST(LogitProcessorsTest, TheRowItselfComesBackWhereNothingIsOn) {
  const std::vector<float> logits = {1, 2, 3};
  LogitProcessors processors(
      {}, {.prompt_length = 2, .min_tokens = 3, .end_token_ids = {1}});
  EXPECT_TRUE(processors.ActiveAt(4));
  EXPECT_FALSE(processors.ActiveAt(5));
  EXPECT_NE(processors.Apply(logits, At(4)).data(), logits.data());
  EXPECT_EQ(processors.Apply(logits, At(5)).data(), logits.data());
  LogitProcessors none(
      {}, {.prompt_length = 2, .min_tokens = 3, .end_token_ids = {}});
  EXPECT_FALSE(none.ActiveAt(2));
}

TEST(LogitProcessorsTest, RepetitionDividesPositiveAndMultipliesTheRest) {
  SamplingParams params;
  params.repetition_penalty = 2;
  // Prompt and output count alike, once each.
  EXPECT_EQ(Applied(params,
                    {.prompt_length = 3, .end_token_ids = {}},
                    {3, -3, 0, 5, -0.0f, 7, kInf, -kInf},
                    {0, 0, 1, 0, 2},
                    {4, 4, 6, 7}),
            (std::vector<float>{1.5f, -6, 0, 5, 0, 7, kInf, -kInf}));
}

TEST(LogitProcessorsTest, FrequencyAndPresenceCountTheOutputOnly) {
  SamplingParams params;
  params.frequency_penalty = 0.5f;
  params.presence_penalty = 0.25f;
  EXPECT_EQ(Applied(params,
                    {.prompt_length = 2, .end_token_ids = {}},
                    {1, 1, 1, 1},
                    {0, 0, 1, 1},
                    {1, 2}),
            (std::vector<float>{1, -0.75f, 0.25f, 1}));
}

TEST(LogitProcessorsTest, StagesRunInTheirOrder) {
  SamplingParams params;
  params.logit_bias = {{0, 2.0f}, {1, 50.0f}};
  params.repetition_penalty = 2;
  params.presence_penalty = 1;
  // (-1 + 2) / 2 - 1; the end token is masked behind its bias.
  EXPECT_EQ(Applied(params,
                    {.prompt_length = 1, .min_tokens = 2, .end_token_ids = {1}},
                    {-1, 3},
                    {1, 0}),
            (std::vector<float>{-0.5f, -kInf}));
}

TEST(LogitProcessorsTest, MinTokensMasksUpToItsPosition) {
  const SequenceContext context = {
      .prompt_length = 3, .min_tokens = 2, .end_token_ids = {0, 2}};
  LogitProcessors processors({}, context);
  const std::vector<float> logits = {1, 2, 3};
  for (int position = 3; position < 8; ++position) {
    const absl::Span<const float> row = processors.Apply(logits, At(position));
    EXPECT_EQ(row[0] == -kInf, position < 5);
    EXPECT_EQ(row[1], 2);
    EXPECT_EQ(row[2] == -kInf, position < 5);
  }
}

TEST(LogitProcessorsTest, WhatIsFiniteStaysFiniteAndNanStaysNan) {
  const float largest = std::numeric_limits<float>::max();
  SamplingParams params;
  params.repetition_penalty = 1e-30f;
  params.logit_bias = {{0, 100.0f}, {3, 100.0f}};
  std::vector<float> row =
      Applied(params, {}, {largest, largest, kNan, kNan}, {0, 1, 2});
  EXPECT_EQ(row[0], largest);
  EXPECT_EQ(row[1], largest);
  EXPECT_TRUE(std::isnan(row[2]));
  EXPECT_TRUE(std::isnan(row[3]));
  params.repetition_penalty = largest;
  row = Applied(params, {}, {-1e10f, 1e-10f}, {0, 1});
  EXPECT_EQ(row[0], -largest);
  EXPECT_GE(row[1], 0);
}

TEST(LogitProcessorsTest, TokensOutsideTheRowAreLeftAlone) {
  SamplingParams params;
  params.presence_penalty = 1;
  params.logit_bias = {{7, 1.0f}};
  EXPECT_EQ(Applied(params,
                    {.prompt_length = 0, .min_tokens = 9, .end_token_ids = {5}},
                    {0, 0},
                    {1, 6, 1 << 30}),
            (std::vector<float>{0, -1}));
}

// Counts of every token, straight from the history.
std::map<int32_t, std::pair<int, int>> CountPlainly(const Ids& tokens,
                                                    size_t prompt_length) {
  std::map<int32_t, std::pair<int, int>> counts;
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto& [in_prompt, in_output] = counts[tokens[i]];
    ++(i < prompt_length ? in_prompt : in_output);
  }
  return counts;
}

TEST(TokenCountsTest, FollowsCommitsDraftsAndRollbacks) {
  std::mt19937 random(12);
  for (int sequence = 0; sequence < 30; ++sequence) {
    const size_t prompt_length = 1 + random() % 40;
    Ids log(prompt_length);
    for (int32_t& token : log) token = static_cast<int32_t>(random() % 20);
    TokenCounts counts(static_cast<int>(prompt_length));
    for (int step = 0; step < 60; ++step) {
      Ids draft(random() % 6);
      for (int32_t& token : draft) token = static_cast<int32_t>(random() % 20);
      // Rows of a pass in their order, at times only some of them.
      for (size_t i = 0; i <= draft.size(); ++i) {
        if (random() % 4 == 0) continue;
        const auto run = absl::MakeConstSpan(draft).first(i);
        counts.Follow({.settled = log, .run = run});
        Ids all = log;
        all.insert(all.end(), run.begin(), run.end());
        std::map<int32_t, std::pair<int, int>> got;
        for (const TokenCounts::Entry& entry : counts.entries()) {
          if (entry.in_prompt == 0 && entry.in_output == 0) continue;
          EXPECT_TRUE(
              got.emplace(entry.token_id,
                          std::make_pair(entry.in_prompt, entry.in_output))
                  .second);
        }
        ASSERT_EQ(got, CountPlainly(all, prompt_length));
      }
      // Some of the draft is right, or the path changes altogether.
      if (random() % 10 == 0 && log.size() > prompt_length) {
        log.resize(prompt_length + random() % (log.size() - prompt_length));
      }
      const size_t accepted = draft.empty() ? 0 : random() % draft.size();
      log.insert(log.end(),
                 draft.begin(),
                 draft.begin() + static_cast<std::ptrdiff_t>(accepted));
      log.push_back(static_cast<int32_t>(random() % 20));
    }
  }
}

}  // namespace
}  // namespace specwire
