// SPDX-License-Identifier: Apache-2.0

// What users are served is distributed as the target says: chi-square against
// the exact distribution, over rule, temperature, top_k, top_p, min_p,
// penalties, run length and drafter. A fixed part of the settings by default,
// all of them with SPECWIRE_TEST_FULL=1 (scripts/test.sh --full).

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
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
constexpr int kVocab = 8;
// Of the whole grid, this many are left out for each that runs by default; no
// axis has a common divisor with it.
constexpr size_t kStride = 13;

bool FullTest() {
  const char* value = std::getenv("SPECWIRE_TEST_FULL");
  return value != nullptr && std::string(value) == "1";
}

struct Setting {
  ServingOptions options;
  const char* drafter = "good";
};

std::string Describe(const Setting& setting) {
  const SamplingParams& sampling = setting.options.sampling;
  return absl::StrCat(
      setting.options.rule == AcceptanceRule::kRatio ? "ratio" : "coupled",
      ", temperature ",
      sampling.temperature,
      ", top_k ",
      sampling.top_k,
      ", top_p ",
      sampling.top_p,
      ", min_p ",
      sampling.min_p,
      ", repetition_penalty ",
      sampling.repetition_penalty,
      ", run length ",
      setting.options.run_length,
      ", drafter ",
      setting.drafter);
}

void SwitchPenaltiesOn(ServingOptions* options) {
  options->sampling.repetition_penalty = 1.3f;
  options->sampling.frequency_penalty = 0.4f;
  options->sampling.presence_penalty = -0.3f;
  options->sampling.logit_bias = {{.token_id = 4, .bias = 0.8f}};
  options->min_tokens = options->num_tokens;
  options->stop_token_ids = {6};
}

std::vector<Setting> Grid() {
  std::vector<Setting> grid;
  for (const auto rule : {AcceptanceRule::kCoupled, AcceptanceRule::kRatio}) {
    for (const float temperature : {0.7f, 1.0f, 1.3f}) {
      for (const int top_k : {0, 5}) {
        for (const float top_p : {1.0f, 0.8f}) {
          for (const float min_p : {0.0f, 0.08f}) {
            for (const bool penalties : {false, true}) {
              for (const int run_length : {1, 2, 4}) {
                for (const char* drafter : {"good", "bad", "adversarial"}) {
                  Setting setting = {{}, drafter};
                  setting.options.rule = rule;
                  setting.options.sampling.temperature = temperature;
                  setting.options.sampling.top_k = top_k;
                  setting.options.sampling.top_p = top_p;
                  setting.options.sampling.min_p = min_p;
                  if (penalties) SwitchPenaltiesOn(&setting.options);
                  setting.options.run_length = run_length;
                  setting.options.window = 2 * run_length;
                  grid.push_back(setting);
                }
              }
            }
          }
        }
      }
    }
  }
  return grid;
}

void CheckAll(const std::vector<Setting>& settings) {
  const ToyEngine target(kVocab, 1.2f, 90);
  for (size_t i = 0; i < settings.size(); ++i) {
    const Setting& setting = settings[i];
    SCOPED_TRACE(Describe(setting));
    ToyEngine engine(target, 0.0f, 0);
    const auto drafter = MakeToyDrafter(setting.drafter, target);
    const auto second = MakeToyDrafter("bad", target);
    ToyServing serving(&engine, {drafter.get(), second.get()}, setting.options);
    TextTest test(target,
                  setting.options,
                  static_cast<int>(settings.size()) *
                      TextTest::NumTests(setting.options.num_tokens));
    for (int sample = 0; sample < kSamples; ++sample) {
      const auto served =
          serving.Generate(static_cast<uint64_t>(sample) + 7000000 * i);
      ASSERT_TRUE(served.ok()) << served.status();
      ASSERT_EQ(static_cast<int>(served->tokens.size()),
                setting.options.num_tokens);
      test.Count(served->tokens);
    }
    std::string where;
    const double excess = test.Excess(&where);
    EXPECT_LT(excess, 1) << where;
  }
}

TEST(DistributionTest, TheGridFollowsTheTarget) {
  const std::vector<Setting> grid = Grid();
  std::vector<Setting> settings;
  for (size_t i = 0; i < grid.size(); ++i) {
    if (FullTest() || i % kStride == 4) settings.push_back(grid[i]);
  }
  CheckAll(settings);
}

TEST(DistributionTest, EveryDrafterLeavesTheDistribution) {
  std::vector<Setting> settings;
  for (const auto rule : {AcceptanceRule::kCoupled, AcceptanceRule::kRatio}) {
    for (const char* drafter : {"oracle", "ngram", "random"}) {
      Setting setting = {{}, drafter};
      setting.options.rule = rule;
      setting.options.sampling.top_p = 0.9f;
      settings.push_back(setting);
    }
  }
  CheckAll(settings);
}

// Verifiers that die with a commit under way, drafters that are lost, replaced
// and come back, and passes that take part of what is pending.
TEST(DistributionTest, AccidentsLeaveTheDistribution) {
  std::vector<Setting> settings;
  for (const auto rule : {AcceptanceRule::kCoupled, AcceptanceRule::kRatio}) {
    Setting setting = {{}, "good"};
    setting.options.rule = rule;
    setting.options.num_tokens = 6;
    setting.options.run_length = 4;
    setting.options.window = 4;
    setting.options.accidents = 0.15;
    settings.push_back(setting);
  }
  CheckAll(settings);
}

// The samples of an n > 1 request have one seed, and nothing else in common.
TEST(DistributionTest, ChoicesAreIndependent) {
  const ToyEngine target(kVocab, 1.2f, 90);
  for (const auto rule : {AcceptanceRule::kCoupled, AcceptanceRule::kRatio}) {
    ServingOptions options;
    options.rule = rule;
    options.num_tokens = 1;
    ToyEngine engine(target, 0.0f, 0);
    const auto drafter = MakeToyDrafter("good", target);
    ToyServing serving(&engine, {drafter.get()}, options);
    const std::vector<double> p =
        ExactDistribution(target, options, options.prompt);
    std::vector<double> exact;
    for (const double a : p) {
      for (const double b : p) exact.push_back(a * b);
    }
    std::vector<double> counts(exact.size(), 0.0);
    for (uint64_t seed = 0; seed < kSamples; ++seed) {
      const auto first = serving.Generate(seed, 0);
      const auto second = serving.Generate(seed, 1);
      ASSERT_TRUE(first.ok() && second.ok());
      ++counts[static_cast<size_t>(first->tokens[0] * kVocab +
                                   second->tokens[0])];
    }
    EXPECT_LT(ChiSquareExcess(counts, exact, 2), 1);
  }
}

}  // namespace
}  // namespace specwire
