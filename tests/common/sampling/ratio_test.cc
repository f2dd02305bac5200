// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/ratio.h"

#include <cstdint>
#include <string>
#include <vector>

#include "common/sampling/philox.h"
#include "common/sampling/pipeline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/sampling/ratio_test_util.h"
#include "tests/common/sampling/sampling_test_util.h"

namespace specwire {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(RatioRuleTest, AcceptsByTheRatioOfItsOwnNoise) {
  // p / q = 0.25 / 0.5: accepted exactly where u < 1/2.
  const TokenDistribution p = Dense({0.25, 0.75});
  const DraftDistribution q = Sparse({0, 1}, {0.5f, 0.5f});
  int accepted = 0;
  for (int position = 0; position < 2000; ++position) {
    const DrawKey key = {.seed = 3, .position = position, .choice = 2};
    const DraftVerdict verdict = VerifyDraft(p, q, 0, key);
    EXPECT_EQ(verdict.accepted, Uniform(NoiseStream::kAcceptance, key) < 0.5);
    // All that is left of p - q is token 1.
    EXPECT_EQ(verdict.token, verdict.accepted ? 0 : 1);
    accepted += verdict.accepted;
    // p / q = 0.75 / 0.5 is always accepted.
    EXPECT_TRUE(VerifyDraft(p, q, 1, key).accepted);
  }
  EXPECT_NEAR(accepted, 1000, 75);
}

TEST(RatioRuleTest, ATokenThatTheTargetCannotDrawIsNeverAccepted) {
  const TokenDistribution p = Dense({0, 0.4, 0.6});
  const DraftDistribution q = Sparse({0}, {1.0f});
  for (int position = 0; position < 500; ++position) {
    const DrawKey key = {.seed = 5, .position = position};
    const DraftVerdict verdict = VerifyDraft(p, q, 0, key);
    EXPECT_FALSE(verdict.accepted);
    // Nothing of q lies under p: the correction is p itself.
    EXPECT_EQ(verdict.token,
              Uniform(NoiseStream::kResidual, key) < 0.4 ? 1 : 2);
  }
}

TEST(RatioRuleTest, EqualDistributionsAreAlwaysAccepted) {
  const TokenDistribution p = Dense({0.125, 0.5, 0.375});
  const DraftDistribution q = TruncateForDraft(p, 100);
  for (int position = 0; position < 500; ++position) {
    const DrawKey key = {.seed = 6, .position = position};
    EXPECT_TRUE(VerifyDraft(p, q, DrawDraft(q, key), key).accepted);
  }
}

TEST(RatioRuleTest, TheCorrectionFollowsTheResidual) {
  // p - q = (-.3, .1, .2): corrections 1 and 2 as 1 to 2.
  const TokenDistribution p = Dense({0.2, 0.3, 0.5});
  const DraftDistribution q = Sparse({0, 1, 2}, {0.5f, 0.2f, 0.3f});
  std::vector<double> counts(3, 0.0);
  for (int position = 0; position < 30000; ++position) {
    const DrawKey key = {.seed = 8, .position = position};
    const DraftVerdict verdict = VerifyDraft(p, q, 0, key);
    if (verdict.accepted) continue;
    const double u = Uniform(NoiseStream::kResidual, key);
    EXPECT_EQ(verdict.token,
              u < 1.0 / 3 - 1e-7   ? 1
              : u > 1.0 / 3 + 1e-7 ? 2
                                   : verdict.token);
    ++counts[static_cast<size_t>(verdict.token)];
  }
  EXPECT_EQ(counts[0], 0);
  EXPECT_NEAR(counts[1] / (counts[1] + counts[2]), 1.0 / 3, 0.015);
}

TEST(RatioRuleTest, DrawsTakeAscendingIdsAndEachItsOwnStream) {
  const TokenDistribution p = Dense({0, 0.25, 0, 0.5, 0.25});
  const DraftDistribution q = Sparse({1, 3, 4}, {0.25f, 0.5f, 0.25f});
  const auto by = [](double u) { return u < 0.25 ? 1 : u < 0.75 ? 3 : 4; };
  int different = 0;
  for (int position = 0; position < 1000; ++position) {
    const DrawKey key = {.seed = 11, .position = position, .choice = 1};
    EXPECT_EQ(DrawBonus(p, key), by(Uniform(NoiseStream::kResidual, key)));
    EXPECT_EQ(DrawPlain(p, key), by(Uniform(NoiseStream::kPlain, key)));
    EXPECT_EQ(DrawDraft(q, key), by(Uniform(NoiseStream::kDrafter, key)));
    different += DrawBonus(p, key) != DrawPlain(p, key);
  }
  EXPECT_GT(different, 300);
}

TEST(RatioRuleTest, TruncationKeepsTheLikeliestAndRenormalises) {
  const TokenDistribution p = Dense({0.1, 0.2, 0.3, 0.2, 0.2});
  const DraftDistribution q = TruncateForDraft(p, 3);
  // Of three equals, the lower ids.
  EXPECT_EQ(q.token_ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_FLOAT_EQ(q.probabilities[0], 2.0f / 7);
  EXPECT_FLOAT_EQ(q.probabilities[1], 3.0f / 7);
  EXPECT_TRUE(ValidateDraft(q, 3, 5).ok());
  EXPECT_EQ(TruncateForDraft(p, 1).probabilities, (std::vector<float>{1.0f}));
  // What is no positive float is not sent.
  const DraftDistribution tiny = TruncateForDraft(Dense({1.0, 1e-60}), 9);
  EXPECT_EQ(tiny.token_ids, (std::vector<int32_t>{0}));
}

TEST(RatioRuleTest, WhatCannotBeVerifiedIsRefused) {
  const DraftDistribution good = Sparse({2, 5, 9}, {0.5f, 0.25f, 0.25f});
  EXPECT_TRUE(ValidateDraft(good, 5, 10).ok());
  EXPECT_TRUE(ValidateDraft(Sparse({0}, {1.0f}), 0, 1).ok());
  // As half precision rounds.
  EXPECT_TRUE(ValidateDraft(Sparse({0, 1}, {0.5f, 0.4996f}), 0, 2).ok());
  const auto refused = [](const DraftDistribution& q,
                          int32_t token,
                          const std::string& field,
                          const std::string& part) {
    const absl::Status status = ValidateDraft(q, token, 10);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << part;
    EXPECT_THAT(std::string(status.message()), StartsWith(field + ":"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  };
  refused(Sparse({}, {}), 0, "q.token_ids", "at least 1");
  const DraftDistribution many = Sparse(std::vector<int32_t>(4097, 1),
                                        std::vector<float>(4097, 1 / 4097.0f));
  refused(many, 1, "q.token_ids", "at most 4096");
  refused(Sparse({1, 2}, {1.0f}), 1, "q.probabilities", "as many");
  refused(Sparse({-1, 2}, {0.5f, 0.5f}), 2, "q.token_ids", "[0, 10)");
  refused(Sparse({1, 10}, {0.5f, 0.5f}), 1, "q.token_ids", "[0, 10)");
  refused(Sparse({2, 1}, {0.5f, 0.5f}), 1, "q.token_ids", "ascend");
  refused(Sparse({2, 2}, {0.5f, 0.5f}), 2, "q.token_ids", "ascend");
  for (const float bad : {0.0f, -0.5f, 1.5f, kNan, kInf}) {
    refused(Sparse({1, 2}, {1.0f, bad}), 1, "q.probabilities", "(0, 1]");
  }
  refused(Sparse({1, 2}, {0.5f, 0.49f}), 1, "q.probabilities", "sum to 1");
  refused(Sparse({1, 2}, {0.6f, 0.5f}), 1, "q.probabilities", "sum to 1");
  refused(good, 3, "q.token_ids", "not drawn from q");
}

}  // namespace
}  // namespace specwire
