// SPDX-License-Identifier: Apache-2.0

// What the ratio rule emits is distributed as the target, and the test that
// says so sees the mistakes that systems make.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "common/sampling/pipeline.h"
#include "common/sampling/ratio.h"
#include "gtest/gtest.h"
#include "tests/common/sampling/ratio_test_util.h"
#include "tests/common/sampling/sampling_test_util.h"

namespace specwire {
namespace {

constexpr int kSamples = 130000;
constexpr size_t kVocab = 32;

// One position: a drafter's draw and what becomes of it.
using Play = std::function<int32_t(const TokenDistribution& p,
                                   const TokenDistribution& full_q,
                                   const DraftDistribution& q,
                                   const DrawKey& key)>;

int32_t PlayByTheRule(const TokenDistribution& p,
                      const TokenDistribution&,
                      const DraftDistribution& q,
                      const DrawKey& key) {
  return VerifyDraft(p, q, DrawDraft(q, key), key).token;
}

int32_t DrawFrom(const std::vector<double>& weights, double u) {
  double total = 0;
  for (const double weight : weights) total += weight;
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    if (sum > u * total) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(weights.size()) - 1;
}

// The rule with something wrong in it.
struct Mistake {
  bool inverted_ratio = false;
  bool correction_from_p = false;
  bool residual_without_token_only = false;
  bool untruncated_q_reported = false;
  bool shared_noise = false;
  // Each side counts its own calls: the first draw and the first judgement get
  // the same word.
  bool noise_by_calls = false;
};

Play With(const Mistake& mistake) {
  return [mistake](const TokenDistribution& target,
                   const TokenDistribution& full_q,
                   const DraftDistribution& sparse,
                   const DrawKey& key) -> int32_t {
    const std::vector<double> p = ToVector(target, kVocab);
    const std::vector<double> q = mistake.untruncated_q_reported
                                      ? ToVector(full_q, kVocab)
                                      : ToVector(sparse, kVocab);
    const int32_t token = DrawDraft(sparse, key);
    const auto x = static_cast<size_t>(token);
    const double ratio = mistake.inverted_ratio ? q[x] / p[x] : p[x] / q[x];
    const double u = Uniform(mistake.noise_by_calls ? NoiseStream::kDrafter
                                                    : NoiseStream::kAcceptance,
                             key);
    if (u < ratio) return token;
    const double v =
        mistake.shared_noise ? u : Uniform(NoiseStream::kResidual, key);
    if (mistake.correction_from_p) return DrawFrom(p, v);
    std::vector<double> residual = p;
    for (size_t i = 0; i < kVocab; ++i) {
      if (mistake.residual_without_token_only && i != x) continue;
      residual[i] = std::max(0.0, p[i] - q[i]);
    }
    return DrawFrom(residual, v);
  };
}

struct Setting {
  float temperature = 1;
  int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  // How far the drafter's logits are from the target's.
  float noise = 0.5f;
  // Tokens in the drafter's truncated q.
  int q_size = 32;
};

// Pearson's statistic of one setting, over its limit.
double Excess(const Setting& setting,
              const Play& play,
              int settings,
              int num_samples = kSamples) {
  SamplingParams params;
  params.temperature = setting.temperature;
  params.top_k = setting.top_k;
  params.top_p = setting.top_p;
  params.min_p = setting.min_p;
  const std::vector<float> target = RandomLogits(kVocab, 1.0f, 5);
  std::vector<float> draft = RandomLogits(kVocab, setting.noise, 6);
  for (size_t i = 0; i < kVocab; ++i) draft[i] += target[i];
  Pipeline pipeline(params, {});
  const TokenDistribution p = pipeline.Distribution(target, At(0));
  const TokenDistribution full_q = pipeline.Distribution(draft, At(0));
  const DraftDistribution q = TruncateForDraft(full_q, setting.q_size);
  std::vector<double> counts(kVocab, 0.0);
  for (int position = 0; position < num_samples; ++position) {
    const DrawKey key = {.seed = 4242, .position = position};
    ++counts[static_cast<size_t>(play(p, full_q, q, key))];
  }
  int degrees = 0;
  const double statistic = ChiSquare(counts, ToVector(p, kVocab), &degrees);
  return statistic / ChiSquareLimit(degrees, settings);
}

TEST(RatioDistributionTest, WhatIsEmittedFollowsTheTarget) {
  std::vector<Setting> settings;
  for (const float noise : {0.0f, 0.3f, 1.0f, 4.0f}) {
    settings.push_back({.noise = noise});
    settings.push_back({.noise = noise, .q_size = 4});
    settings.push_back({.temperature = 0.7f, .top_k = 10, .noise = noise});
    settings.push_back({.top_p = 0.8f, .noise = noise, .q_size = 8});
    settings.push_back({.temperature = 1.5f, .min_p = 0.1f, .noise = noise});
    settings.push_back({.noise = noise, .q_size = 1});
  }
  for (size_t i = 0; i < settings.size(); ++i) {
    EXPECT_LT(Excess(settings[i], PlayByTheRule, 30), 1) << "setting " << i;
  }
}

TEST(RatioDistributionTest, BonusAndPlainDrawsFollowTheTarget) {
  const Setting setting = {.temperature = 1.2f, .top_k = 20};
  EXPECT_LT(Excess(
                setting,
                [](const auto& p, const auto&, const auto&, const auto& k) {
                  return DrawBonus(p, k);
                },
                2),
            1);
  EXPECT_LT(Excess(
                setting,
                [](const auto& p, const auto&, const auto&, const auto& k) {
                  return DrawPlain(p, k);
                },
                2),
            1);
}

TEST(RatioDistributionTest, TheDistributionTestSeesEveryMistake) {
  const Setting near = {.noise = 0.5f};
  // Without a mistake, the tests' own writing of the rule passes.
  EXPECT_LT(Excess(near, With({}), 30), 1);
  EXPECT_GT(Excess(near, With({.inverted_ratio = true}), 30), 1);
  EXPECT_GT(Excess(near, With({.correction_from_p = true}), 30), 1);
  EXPECT_GT(Excess(near, With({.residual_without_token_only = true}), 30), 1);
  EXPECT_GT(Excess(near, With({.shared_noise = true}), 30), 1);
  EXPECT_GT(Excess(near, With({.noise_by_calls = true}), 30), 1);
  // A small bias: more samples.
  EXPECT_GT(Excess({.noise = 0.5f, .q_size = 24},
                   With({.untruncated_q_reported = true}),
                   30,
                   4 * kSamples),
            1);
}

TEST(RatioDistributionTest, ADrafterThatIsLateForSomeTokensBiasesTheOutput) {
  // Why the ratio rule runs in lock-step: with p = (.5, .5), q = (.8, .2) and
  // plain decoding wherever the draft is the second token, the output is (.6,
  // .4). In lock-step it is (.5, .5).
  const TokenDistribution p = Dense({0.5, 0.5});
  const DraftDistribution q = Sparse({0, 1}, {0.8f, 0.2f});
  for (const bool late : {false, true}) {
    std::vector<double> counts(2, 0.0);
    for (int position = 0; position < kSamples; ++position) {
      const DrawKey key = {.seed = 99, .position = position};
      const int32_t draft = DrawDraft(q, key);
      const int32_t token = late && draft == 1
                                ? DrawPlain(p, key)
                                : VerifyDraft(p, q, draft, key).token;
      ++counts[static_cast<size_t>(token)];
    }
    EXPECT_NEAR(counts[0] / kSamples, late ? 0.6 : 0.5, 0.006);
    int degrees = 0;
    const double statistic = ChiSquare(counts, {{0.5, 0.5}}, &degrees);
    EXPECT_EQ(statistic > ChiSquareLimit(degrees, 2), late);
  }
}

TEST(RatioDistributionTest, AcceptanceIsOneMinusTheDistance) {
  for (const float noise : {0.2f, 0.7f, 1.5f}) {
    const std::vector<float> target = RandomLogits(kVocab, 1.0f, 5);
    std::vector<float> draft = RandomLogits(kVocab, noise, 6);
    for (size_t i = 0; i < kVocab; ++i) draft[i] += target[i];
    Pipeline pipeline({}, {});
    const TokenDistribution p = pipeline.Distribution(target, At(0));
    const DraftDistribution q =
        TruncateForDraft(pipeline.Distribution(draft, At(0)), 20);
    const std::vector<double> dense_p = ToVector(p, kVocab);
    const std::vector<double> dense_q = ToVector(q, kVocab);
    double overlap = 0;
    for (size_t i = 0; i < kVocab; ++i) {
      overlap += std::min(dense_p[i], dense_q[i]);
    }
    int accepted = 0;
    for (int position = 0; position < kSamples; ++position) {
      const DrawKey key = {.seed = 31, .position = position};
      accepted += VerifyDraft(p, q, DrawDraft(q, key), key).accepted;
    }
    // Five standard deviations.
    EXPECT_NEAR(static_cast<double>(accepted) / kSamples,
                overlap,
                5 * std::sqrt(overlap * (1 - overlap) / kSamples));
  }
}

TEST(RatioDistributionTest, WholeRunsFollowTheJointDistribution) {
  // Three tokens of a chain, five tokens in the vocabulary, runs of 0 to 3
  // drafts, then a correction or bonus: their joint distribution is the
  // target's. Noise that positions or decisions share would show here.
  constexpr size_t kTokens = 5;
  std::vector<TokenDistribution> p;
  std::vector<DraftDistribution> q;
  for (uint32_t last = 0; last < kTokens; ++last) {
    Pipeline pipeline({}, {});
    p.push_back(
        pipeline.Distribution(RandomLogits(kTokens, 1, last + 50), At(0)));
    q.push_back(TruncateForDraft(
        pipeline.Distribution(RandomLogits(kTokens, 1, last + 90), At(0)), 4));
  }
  std::vector<double> exact;
  for (size_t a = 0; a < kTokens; ++a) {
    for (size_t b = 0; b < kTokens; ++b) {
      for (size_t c = 0; c < kTokens; ++c) {
        exact.push_back(p[0].probabilities[a] * p[a].probabilities[b] *
                        p[b].probabilities[c]);
      }
    }
  }
  for (int run_length = 0; run_length <= 3; ++run_length) {
    std::vector<double> counts(exact.size(), 0.0);
    for (uint64_t seed = 0; seed < 150000; ++seed) {
      std::vector<size_t> text;
      const auto last = [&] { return text.empty() ? 0 : text.back(); };
      while (text.size() < 3) {
        const size_t committed = text.size();
        // The whole run is drafted before any of it is judged.
        std::vector<size_t> draft;
        size_t before = last();
        const auto key = [&](size_t at) {
          return DrawKey{.seed = seed, .position = static_cast<int>(at)};
        };
        for (int i = 0; i < run_length; ++i) {
          before = static_cast<size_t>(
              DrawDraft(q[before], key(committed + draft.size())));
          draft.push_back(before);
        }
        bool rejected = false;
        for (const size_t token : draft) {
          const DraftVerdict verdict = VerifyDraft(p[last()],
                                                   q[last()],
                                                   static_cast<int32_t>(token),
                                                   key(text.size()));
          text.push_back(static_cast<size_t>(verdict.token));
          rejected = !verdict.accepted;
          if (rejected) break;
        }
        if (!rejected) {
          text.push_back(static_cast<size_t>(
              run_length == 0 ? DrawPlain(p[last()], key(text.size()))
                              : DrawBonus(p[last()], key(text.size()))));
        }
      }
      ++counts[(text[0] * kTokens + text[1]) * kTokens + text[2]];
    }
    int degrees = 0;
    const double statistic = ChiSquare(counts, exact, &degrees);
    EXPECT_LT(statistic, ChiSquareLimit(degrees, 4))
        << "runs of " << run_length;
  }
}

}  // namespace
}  // namespace specwire
