// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/coupled.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/sampling/philox.h"
#include "common/sampling/pipeline.h"

namespace specwire {
namespace {

using Words = std::array<uint32_t, 4>;

SamplingParams Sampled(float temperature) {
  SamplingParams params;
  params.temperature = temperature;
  return params;
}

std::vector<float> RandomLogits(size_t size, float spread, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// The rule written down plainly: every token's noise, no shortcut.
int32_t ChoosePlainly(absl::Span<const float> logits,
                      const SamplingParams& params,
                      int position,
                      int32_t choice) {
  double best = -std::numeric_limits<double>::infinity();
  int32_t winner = 0;
  for (const Candidate& c : ApplyPipeline(logits, params)) {
    const uint32_t id = static_cast<uint32_t>(c.token_id);
    const Words words = Philox4x32({static_cast<uint32_t>(position),
                                    id / 4,
                                    0,
                                    static_cast<uint32_t>(choice)},
                                   static_cast<uint64_t>(params.seed));
    const double total = c.score + GumbelNoise(words[id % 4]);
    if (total > best) {
      best = total;
      winner = c.token_id;
    }
  }
  return winner;
}

TEST(PhiloxTest, ReproducesThePublishedVectors) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, 0),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, ~0ull),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       0x299f31d0a4093822ull),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, NoiseIsFiniteAtBothEnds) {
  EXPECT_NEAR(GumbelNoise(0), -3.13, 0.001);
  EXPECT_NEAR(GumbelNoise(0xffffffff), 22.874, 0.001);
}

TEST(PipelineTest, ReproducesTheReferenceRowsWithoutPenalties) {
  std::ifstream file(std::string(SPECWIRE_TEST_DATA) +
                     "/reference/processors.jsonl");
  ASSERT_TRUE(file.good());
  int num_rows = 0;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    const nlohmann::json& p = row["params"];
    if (p["repetition_penalty"] != 1.0 || p["frequency_penalty"] != 0.0 ||
        p["presence_penalty"] != 0.0 || !p["logit_bias"].empty() ||
        p["temperature"] == 0.0) {
      continue;
    }
    SCOPED_TRACE(row["name"].get<std::string>());
    SamplingParams params = Sampled(p["temperature"]);
    params.top_k = p["top_k"];
    params.top_p = p["top_p"];
    params.min_p = p["min_p"];
    const std::vector<float> logits = row["logits"];
    const std::vector<Candidate> candidates = ApplyPipeline(logits, params);
    const std::vector<double> probabilities = Probabilities(candidates);
    std::vector<double> dense(logits.size(), 0.0);
    for (size_t i = 0; i < candidates.size(); ++i) {
      dense[static_cast<size_t>(candidates[i].token_id)] = probabilities[i];
    }
    const std::vector<double> want = row["probs"];
    ASSERT_EQ(dense.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(dense[i], want[i], 1e-6) << "token " << i;
      EXPECT_EQ(dense[i] == 0, want[i] == 0) << "token " << i;
    }
    ++num_rows;
  }
  EXPECT_GE(num_rows, 8);
}

TEST(PipelineTest, TiesAtACutKeepTheLowestIds) {
  const std::vector<float> logits = {1, 2, 2, 2, 0};
  SamplingParams params = Sampled(1);
  params.top_k = 2;
  std::vector<Candidate> left = ApplyPipeline(logits, params);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].token_id, 1);
  EXPECT_EQ(left[1].token_id, 2);
  params.top_k = 0;
  params.top_p = 0.01f;
  left = ApplyPipeline(logits, params);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].token_id, 1);
}

TEST(PipelineTest, TopPCountsWhatTopKLeft) {
  // Among the two that top_k leaves, the first alone has 0.62 of the sum.
  const std::vector<float> logits = {1.0f, 0.5f, 0.4f, 0.3f};
  SamplingParams params = Sampled(1);
  params.top_k = 2;
  params.top_p = 0.6f;
  EXPECT_EQ(ApplyPipeline(logits, params).size(), 1u);
}

TEST(PipelineTest, LogitsThatAreNoNumbersAreNeverChosen) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const CoupledSampler sampler(Sampled(1), 0);
  for (int position = 0; position < 200; ++position) {
    EXPECT_EQ(sampler.Choose({{nan, -infinity, 1.0f, nan}}, position), 2);
  }
  EXPECT_EQ(sampler.Choose({{nan, nan}}, 0), -1);
}

TEST(CoupledSamplerTest, ShortcutsChangeNoChoice) {
  for (int round = 0; round < 400; ++round) {
    SamplingParams params = Sampled(round % 3 == 0 ? 0.7f : 1.0f);
    params.seed = round * 7919;
    if (round % 4 == 1) params.top_k = 40;
    if (round % 4 == 2) params.top_p = 0.95f;
    if (round % 4 == 3) params.min_p = 0.05f;
    const float spread = static_cast<float>(round % 7) + 0.1f;
    const std::vector<float> logits =
        RandomLogits(2000, spread, static_cast<uint32_t>(round));
    const CoupledSampler sampler(params, round % 3);
    EXPECT_EQ(sampler.Choose(logits, round),
              ChoosePlainly(logits, params, round, round % 3))
        << "round " << round;
  }
}

TEST(CoupledSamplerTest, TheSameTokensTieAtTheLowestId) {
  // Temperature 0: no noise.
  const CoupledSampler sampler(Sampled(0), 0);
  EXPECT_EQ(sampler.Choose({{1.0f, 3.0f, 3.0f}}, 5), 1);
}

TEST(CoupledSamplerTest, SeedPositionAndChoiceEachChangeTheNoise) {
  const std::vector<float> flat(1000, 0.0f);
  std::set<int32_t> tokens;
  SamplingParams params = Sampled(1);
  tokens.insert(CoupledSampler(params, 0).Choose(flat, 0));
  tokens.insert(CoupledSampler(params, 0).Choose(flat, 1));
  tokens.insert(CoupledSampler(params, 1).Choose(flat, 0));
  params.seed = 1;
  tokens.insert(CoupledSampler(params, 0).Choose(flat, 0));
  params.seed = int64_t{1} << 32;
  tokens.insert(CoupledSampler(params, 0).Choose(flat, 0));
  EXPECT_EQ(tokens.size(), 5u);
}

// Pearson's statistic of draws at many positions against the exact
// distribution.
double ChiSquare(const std::vector<float>& logits,
                 const SamplingParams& params,
                 int num_samples,
                 int* degrees) {
  const std::vector<Candidate> candidates = ApplyPipeline(logits, params);
  const std::vector<double> probabilities = Probabilities(candidates);
  std::vector<double> expected(logits.size(), 0.0);
  for (size_t i = 0; i < candidates.size(); ++i) {
    expected[static_cast<size_t>(candidates[i].token_id)] =
        probabilities[i] * num_samples;
  }
  std::vector<double> seen(logits.size(), 0.0);
  const CoupledSampler sampler(params, 0);
  for (int position = 0; position < num_samples; ++position) {
    ++seen[static_cast<size_t>(sampler.Choose(logits, position))];
  }
  double statistic = 0;
  *degrees = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (expected[i] == 0) {
      EXPECT_EQ(seen[i], 0) << "a token that was cut was drawn: " << i;
      continue;
    }
    statistic +=
        (seen[i] - expected[i]) * (seen[i] - expected[i]) / expected[i];
    ++*degrees;
  }
  return statistic;
}

TEST(CoupledSamplerTest, DrawsFollowTheDistribution) {
  const std::vector<float> logits = RandomLogits(32, 1.0f, 5);
  for (int setting = 0; setting < 4; ++setting) {
    SamplingParams params = Sampled(setting == 1 ? 0.7f : 1.0f);
    params.seed = 1234 + setting;
    if (setting == 2) params.top_k = 10;
    if (setting == 3) params.top_p = 0.8f;
    int degrees = 0;
    const double statistic = ChiSquare(logits, params, 130000, &degrees);
    // Wilson and Hilferty's approximation of the quantile at level 0.001 / 4.
    const double k = degrees;
    const double z = 3.48;
    const double limit =
        k * std::pow(1 - 2 / (9 * k) + z * std::sqrt(2 / (9 * k)), 3);
    EXPECT_LT(statistic, limit) << "setting " << setting;
  }
}

TEST(CoupledSamplerTest, TheDistributionTestSeesAWrongTemperature) {
  // A control: draws at 0.95 judged as if at 1 must fail.
  const std::vector<float> logits = RandomLogits(32, 1.0f, 5);
  SamplingParams wrong = Sampled(0.95f);
  wrong.seed = 1234;
  const std::vector<Candidate> candidates =
      ApplyPipeline(logits, Sampled(1.0f));
  const std::vector<double> probabilities = Probabilities(candidates);
  std::vector<double> seen(logits.size(), 0.0);
  const CoupledSampler sampler(wrong, 0);
  constexpr int kSamples = 130000;
  for (int position = 0; position < kSamples; ++position) {
    ++seen[static_cast<size_t>(sampler.Choose(logits, position))];
  }
  double statistic = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double expected = probabilities[i] * kSamples;
    statistic += (seen[i] - expected) * (seen[i] - expected) / expected;
  }
  EXPECT_GT(statistic, 65.0);
}

}  // namespace
}  // namespace specwire
