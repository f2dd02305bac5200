// SPDX-License-Identifier: Apache-2.0

// How often draft tokens are accepted, with drafters whose distance to the
// target is known: 1 - TV under the ratio rule, at least (1 - TV) / (1 + TV)
// and at most 1 - TV under the coupled rule. Through the code that serves.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/exactness/exact_distribution.h"
#include "tests/exactness/toy_drafters.h"
#include "tests/exactness/toy_engine.h"
#include "tests/exactness/toy_serving.h"

namespace specwire {
namespace {

constexpr int kSamples = 130000;
constexpr int kVocab = 32;
// Standard deviations.
constexpr double kErrorBar = 5;

struct Measured {
  double distance = 0;
  double acceptance = 0;
  double error = 0;
};

// Of the first draft token of a text.
Measured Measure(AcceptanceRule rule, float noise, const SamplingParams& how) {
  const ToyEngine target(kVocab, 1.0f, 50);
  ToyEngine engine(target, 0.0f, 0);
  auto model = std::make_unique<ToyEngine>(target, noise, 51);
  ServingOptions options;
  options.rule = rule;
  options.sampling = how;
  options.num_tokens = 2;
  options.run_length = 1;
  options.window = 1;
  Measured measured;
  measured.distance =
      Distance(ExactDistribution(target, options, options.prompt),
               ExactDistribution(*model, options, options.prompt));
  const auto drafter = MakeToyModelDrafter(std::move(model));
  ToyServing serving(&engine, {drafter.get()}, options);
  int accepted = 0;
  for (uint64_t seed = 0; seed < kSamples; ++seed) {
    const auto served = serving.Generate(seed);
    EXPECT_TRUE(served.ok()) << served.status();
    EXPECT_EQ(served->num_proposed, 1);
    accepted += served->num_accepted;
  }
  measured.acceptance = static_cast<double>(accepted) / kSamples;
  measured.error = kErrorBar * std::sqrt(measured.acceptance *
                                         (1 - measured.acceptance) / kSamples) +
                   1e-6;
  return measured;
}

std::vector<SamplingParams> Ways() {
  SamplingParams plain;
  SamplingParams cut;
  cut.temperature = 0.8f;
  cut.top_k = 12;
  cut.top_p = 0.9f;
  return {plain, cut};
}

TEST(AcceptanceLawTest, RatioAcceptsOneMinusTheDistance) {
  for (const SamplingParams& how : Ways()) {
    for (const float noise : {0.0f, 0.2f, 0.5f, 1.0f, 3.0f}) {
      SCOPED_TRACE(absl::StrCat("noise ", noise, ", top_k ", how.top_k));
      const Measured measured = Measure(AcceptanceRule::kRatio, noise, how);
      EXPECT_NEAR(measured.acceptance, 1 - measured.distance, measured.error);
    }
  }
}

TEST(AcceptanceLawTest, CoupledAcceptsAtLeastItsBound) {
  for (const SamplingParams& how : Ways()) {
    for (const float noise : {0.0f, 0.2f, 0.5f, 1.0f, 3.0f}) {
      SCOPED_TRACE(absl::StrCat("noise ", noise, ", top_k ", how.top_k));
      const Measured measured = Measure(AcceptanceRule::kCoupled, noise, how);
      EXPECT_GE(
          measured.acceptance,
          (1 - measured.distance) / (1 + measured.distance) - measured.error);
      // No coupling can do better.
      EXPECT_LE(measured.acceptance, 1 - measured.distance + measured.error);
    }
  }
}

// Models that look at nothing: acceptances are independent, so the number of
// accepted tokens in a run of K is geometric, cut at K.
TEST(AcceptanceLawTest, AcceptedLengthsAreGeometric) {
  constexpr int kRun = 4;
  std::vector<float> p = {1, 0, -1, 2, 0.5f, -0.5f, 0.3f, 1.2f};
  std::vector<float> q = {0, 1, -1, 1, 0.5f, 0.5f, -0.3f, 1.2f};
  for (const auto rule : {AcceptanceRule::kRatio, AcceptanceRule::kCoupled}) {
    ToyEngine target(p);
    auto model = std::make_unique<ToyEngine>(q);
    ServingOptions options;
    options.rule = rule;
    options.num_tokens = kRun + 1;
    options.run_length = kRun;
    options.window = kRun;
    const double overlap =
        1 - Distance(ExactDistribution(target, options, options.prompt),
                     ExactDistribution(*model, options, options.prompt));
    const auto drafter = MakeToyModelDrafter(std::move(model));
    ToyServing serving(&target, {drafter.get()}, options);
    std::vector<double> counts(kRun + 1, 0.0);
    for (uint64_t seed = 0; seed < kSamples; ++seed) {
      const auto served = serving.Generate(seed);
      ASSERT_TRUE(served.ok()) << served.status();
      ASSERT_EQ(served->num_proposed, kRun);
      ++counts[static_cast<size_t>(served->num_accepted)];
    }
    // Under the coupled rule the rate is what is measured; the law is the same.
    const double alpha =
        rule == AcceptanceRule::kRatio ? overlap : 1 - counts[0] / kSamples;
    std::vector<double> law;
    for (int i = 0; i < kRun; ++i) {
      law.push_back(std::pow(alpha, i) * (1 - alpha));
    }
    law.push_back(std::pow(alpha, kRun));
    EXPECT_LT(ChiSquareExcess(counts, law, 2), 1);
  }
}

}  // namespace
}  // namespace specwire
