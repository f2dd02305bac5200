// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/coupled.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "common/sampling/philox.h"
#include "common/sampling/pipeline.h"
#include "common/sampling/processors.h"
#include "gtest/gtest.h"
#include "tests/common/sampling/sampling_test_util.h"

namespace specwire {
namespace {

using Words = std::array<uint32_t, 4>;

SamplingParams Sampled(float temperature) {
  SamplingParams params;
  params.temperature = temperature;
  return params;
}

// The rule written down plainly: every token's noise, no shortcut.
int32_t ChoosePlainly(absl::Span<const float> row,
                      const SamplingParams& params,
                      int position,
                      int32_t choice) {
  double best = -std::numeric_limits<double>::infinity();
  int32_t winner = -1;
  for (const Candidate& c : CutPlainly(row, params)) {
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

TEST(CoupledSamplerTest, LogitsThatAreNoNumbersAreNeverChosen) {
  for (const float temperature : {0.0f, 1.0f}) {
    CoupledSampler sampler(Sampled(temperature), 0);
    for (int position = 0; position < 200; ++position) {
      EXPECT_EQ(sampler.Choose({{kNan, -kInf, 1.0f, kNan}}, At(position)), 2);
      const int32_t token =
          sampler.Choose({{1.0f, kNan, kInf, 90.0f, kInf}}, At(position));
      EXPECT_TRUE(token == 2 || token == 4);
    }
    EXPECT_EQ(sampler.Choose({{kNan, kNan}}, At(0)), -1);
    EXPECT_EQ(sampler.Choose({{-kInf, kNan}}, At(0)), -1);
  }
}

TEST(CoupledSamplerTest, ShortcutsChangeNoChoice) {
  for (int round = 0; round < 3000; ++round) {
    const auto seed = static_cast<uint32_t>(round);
    const SamplingParams params = RandomCuts(seed + 1000000);
    const size_t size = 1 + seed * 41 % 3000;
    const std::vector<float> logits = HardLogits(size, round % 63, seed);
    CoupledSampler sampler(params, round % 3);
    ASSERT_EQ(sampler.Choose(logits, At(round)),
              ChoosePlainly(logits, params, round, round % 3))
        << "round " << round;
  }
}

TEST(CoupledSamplerTest, ShortcutsChangeNoChoiceInALargeVocabulary) {
  for (int round = 0; round < 60; ++round) {
    const auto seed = static_cast<uint32_t>(round);
    const SamplingParams params =
        round % 2 == 0 ? Sampled(1) : RandomCuts(seed);
    const std::vector<float> logits = HardLogits(49152 - seed, round, seed);
    CoupledSampler sampler(params, 1);
    ASSERT_EQ(sampler.Choose(logits, At(round)),
              ChoosePlainly(logits, params, round, 1))
        << "round " << round;
  }
}

TEST(CoupledSamplerTest, TheLargestNoiseOfAllCanStillWin) {
  // This token's word at this position is 2^32 - 1.
  constexpr int kPosition = 216610;
  constexpr int32_t kLucky = 30685;
  SamplingParams params = Sampled(1);
  params.seed = 1;
  CoupledSampler sampler(params, 0);
  const float noise_of_first =
      static_cast<float>(GumbelNoise(Philox4x32({kPosition, 0, 0, 0}, 1)[0]));
  for (const float lead : {0.001f, -0.001f}) {
    std::vector<float> row(49152, -1000.0f);
    row[0] = 0;
    row[kLucky] =
        noise_of_first - static_cast<float>(GumbelNoise(0xffffffffu)) + lead;
    EXPECT_EQ(sampler.Choose(row, At(kPosition)), lead > 0 ? kLucky : 0);
  }
}

TEST(CoupledSamplerTest, TheSameTokensTieAtTheLowestId) {
  // Temperature 0: no noise.
  CoupledSampler sampler(Sampled(0), 0);
  EXPECT_EQ(sampler.Choose({{1.0f, 3.0f, 3.0f}}, At(5)), 1);
}

TEST(CoupledSamplerTest, SeedPositionAndChoiceEachChangeTheNoise) {
  const std::vector<float> flat(1000, 0.0f);
  std::set<int32_t> tokens;
  SamplingParams params = Sampled(1);
  tokens.insert(CoupledSampler(params, 0).Choose(flat, At(0)));
  tokens.insert(CoupledSampler(params, 0).Choose(flat, At(1)));
  tokens.insert(CoupledSampler(params, 1).Choose(flat, At(0)));
  params.seed = 1;
  tokens.insert(CoupledSampler(params, 0).Choose(flat, At(0)));
  params.seed = int64_t{1} << 32;
  tokens.insert(CoupledSampler(params, 0).Choose(flat, At(0)));
  EXPECT_EQ(tokens.size(), 5u);
}

TEST(CoupledSamplerTest, PenaltiesInARunAreThoseOfPlainDecoding) {
  // A target whose logits hardly depend on the history: without penalties it
  // would repeat itself, with them every token counts.
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    SamplingParams params = Sampled(round % 2 == 0 ? 0.0f : 0.8f);
    params.seed = round;
    if (round % 3 != 0) params.frequency_penalty = 0.7f;
    if (round % 3 != 1) params.repetition_penalty = 1.3f;
    params.presence_penalty = 0.3f;
    if (round % 4 == 0) params.logit_bias = {{3, 2.0f}, {7, -100.0f}};
    if (round % 5 == 0) params.top_k = 5;
    const SequenceContext context = {
        .prompt_length = 4, .min_tokens = round % 12, .end_token_ids = {1, 9}};
    const std::vector<float> base =
        RandomLogits(24, 2, static_cast<uint32_t>(round));
    const auto logits_after = [&](size_t length) {
      std::vector<float> logits = base;
      logits[length % 24] += 1;
      return logits;
    };
    // Plainly, a fresh sampler for every token.
    std::vector<int32_t> plain = {5, 5, 2, 11};
    while (plain.size() < 30) {
      CoupledSampler fresh(params, 0, context);
      plain.push_back(fresh.Choose(logits_after(plain.size()),
                                   {.settled = plain, .run = {}}));
    }
    // In runs of drafts, some of them right, by one sampler.
    CoupledSampler sampler(params, 0, context);
    std::vector<int32_t> log(plain.begin(), plain.begin() + 4);
    while (log.size() < 30) {
      std::vector<int32_t> draft;
      for (size_t i = 0; i < 1 + random() % 6; ++i) {
        const size_t at = std::min<size_t>(log.size() + i, 29);
        draft.push_back(random() % 3 == 0 ? static_cast<int32_t>(random() % 24)
                                          : plain[at]);
      }
      for (size_t i = 0; i <= draft.size(); ++i) {
        const auto run = absl::MakeConstSpan(draft).first(i);
        const int32_t token = sampler.Choose(logits_after(log.size() + i),
                                             {.settled = log, .run = run});
        if (i < draft.size() && token == draft[i]) continue;
        log.insert(log.end(), run.begin(), run.end());
        log.push_back(token);
        break;
      }
    }
    log.resize(30);
    ASSERT_EQ(log, plain) << "round " << round;
    for (int i = 4; i < 4 + round % 12; ++i) {
      EXPECT_NE(plain[static_cast<size_t>(i)], 1);
      EXPECT_NE(plain[static_cast<size_t>(i)], 9);
    }
  }
}

TEST(CoupledSamplerTest, PlainArgMaxIsSaidOnlyWhereItHolds) {
  SamplingParams params = Sampled(0);
  const SequenceContext context = {
      .prompt_length = 2, .min_tokens = 3, .end_token_ids = {0}};
  EXPECT_FALSE(CoupledSampler(params, 0, context).IsPlainArgMax(4));
  EXPECT_TRUE(CoupledSampler(params, 0, context).IsPlainArgMax(5));
  EXPECT_TRUE(CoupledSampler(params, 0).IsPlainArgMax(0));
  // Cuts never remove the likeliest token.
  params.top_k = 3;
  params.top_p = 0.5f;
  EXPECT_TRUE(CoupledSampler(params, 0).IsPlainArgMax(0));
  params.presence_penalty = 0.1f;
  EXPECT_FALSE(CoupledSampler(params, 0).IsPlainArgMax(0));
  EXPECT_FALSE(CoupledSampler(Sampled(1), 0).IsPlainArgMax(0));
}

// Ids on rows that every machine can make again; the same on every processor,
// compiler and C library.
TEST(CoupledSamplerTest, ChoicesAreThoseOfRecord) {
  uint64_t digest = 0xcbf29ce484222325ull;
  for (int round = 0; round < 64; ++round) {
    SamplingParams params = Sampled(round % 2 == 0 ? 1.0f : 0.7f);
    params.seed = int64_t{round} * 1000003;
    if (round % 4 == 1) params.top_p = 0.95f;
    if (round % 8 == 2) params.top_k = 40;
    if (round % 8 == 6) params.min_p = 0.05f;
    if (round % 3 == 0) params.repetition_penalty = 1.2f;
    CoupledSampler sampler(params, round % 3);
    const int32_t token = sampler.Choose(
        RowOfRecord(49152, static_cast<uint32_t>(round)), At(100 + round));
    digest = (digest ^ static_cast<uint64_t>(token)) * 0x100000001b3ull;
  }
  EXPECT_EQ(digest, 11393243984099894749u);
}

// Counts of draws at many positions.
std::vector<double> Draws(const std::vector<float>& logits,
                          const SamplingParams& params,
                          int num_samples) {
  std::vector<double> counts(logits.size(), 0.0);
  CoupledSampler sampler(params, 0);
  for (int position = 0; position < num_samples; ++position) {
    ++counts[static_cast<size_t>(sampler.Choose(logits, At(position)))];
  }
  return counts;
}

std::vector<double> Exact(const std::vector<float>& logits,
                          const SamplingParams& params) {
  Pipeline pipeline(params, {});
  const TokenDistribution& distribution = pipeline.Distribution(logits, At(0));
  std::vector<double> exact(logits.size(), 0.0);
  for (size_t i = 0; i < distribution.token_ids.size(); ++i) {
    exact[static_cast<size_t>(distribution.token_ids[i])] =
        distribution.probabilities[i];
  }
  return exact;
}

TEST(CoupledSamplerTest, DrawsFollowTheDistribution) {
  const std::vector<float> logits = RandomLogits(32, 1.0f, 5);
  constexpr int kSettings = 7;
  for (int setting = 0; setting < kSettings; ++setting) {
    SamplingParams params = Sampled(setting == 1 ? 0.7f : 1.0f);
    params.seed = 1234 + setting;
    if (setting == 2) params.top_k = 10;
    if (setting == 3) params.top_p = 0.8f;
    if (setting == 4) params.min_p = 0.1f;
    if (setting == 5) params.temperature = 1.5f;
    if (setting == 6) params.logit_bias = {{3, 1.0f}, {9, -1.0f}};
    int degrees = 0;
    const double statistic = ChiSquare(
        Draws(logits, params, 130000), Exact(logits, params), &degrees);
    EXPECT_LT(statistic, ChiSquareLimit(degrees, kSettings))
        << "setting " << setting;
  }
}

TEST(CoupledSamplerTest, TheDistributionTestSeesAWrongTemperature) {
  // A control: draws at 0.95 judged as if at 1 must fail.
  const std::vector<float> logits = RandomLogits(32, 1.0f, 5);
  SamplingParams wrong = Sampled(0.95f);
  wrong.seed = 1234;
  int degrees = 0;
  const double statistic = ChiSquare(
      Draws(logits, wrong, 130000), Exact(logits, Sampled(1)), &degrees);
  EXPECT_GT(statistic, ChiSquareLimit(degrees, 7));
}

TEST(CoupledSamplerTest, ADrafterNearTheTargetAgreesAsOftenAsTheoryPromises) {
  // (1 - TV) / (1 + TV) at least, for total variation distance TV.
  const std::vector<float> target = RandomLogits(64, 1.5f, 21);
  for (const float distance : {0.2f, 0.6f, 1.2f}) {
    std::vector<float> draft = RandomLogits(64, distance, 22);
    for (size_t i = 0; i < draft.size(); ++i) draft[i] += target[i];
    SamplingParams params = Sampled(1);
    params.seed = 77;
    const std::vector<double> p = Exact(target, params);
    const std::vector<double> q = Exact(draft, params);
    double tv = 0;
    for (size_t i = 0; i < p.size(); ++i) tv += std::abs(p[i] - q[i]) / 2;
    CoupledSampler of_target(params, 0);
    CoupledSampler of_drafter(params, 0);
    constexpr int kSamples = 20000;
    int equal = 0;
    for (int position = 0; position < kSamples; ++position) {
      equal += of_target.Choose(target, At(position)) ==
               of_drafter.Choose(draft, At(position));
    }
    const double rate = static_cast<double>(equal) / kSamples;
    EXPECT_GT(rate, (1 - tv) / (1 + tv) - 0.015) << "TV " << tv;
    EXPECT_LT(rate, 1 - tv + 0.015) << "TV " << tv;
  }
}

}  // namespace
}  // namespace specwire
