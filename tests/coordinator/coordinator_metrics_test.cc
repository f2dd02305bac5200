// SPDX-License-Identifier: Apache-2.0
#include "coordinator/coordinator_metrics.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/metrics/names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

double Sum(const MetricsRegistry& registry, const std::string& name) {
  double sum = 0;
  for (const CounterValue& counter : registry.ReadCounters()) {
    if (counter.name == name) sum += counter.value;
  }
  return sum;
}

int64_t NumSeries(const MetricsRegistry& registry) {
  const std::string text = registry.Expose();
  return std::count(text.begin(), text.end(), '\n');
}

TEST(CoordinatorMetricsTest, ThousandsOfNodeNamesMakeABoundedNumberOfSeries) {
  constexpr int kNames = 10000;
  MetricsRegistry registry;
  CoordinatorMetrics metrics(&registry);
  ModelMetrics* const one = metrics.ForModel("one");
  ModelMetrics* const two = metrics.ForModel("two");
  const int64_t before = NumSeries(registry);
  for (int i = 0; i < kNames; ++i) {
    ModelMetrics* const model = i % 2 == 0 ? one : two;
    const PairMetrics pair =
        model->Pair(absl::StrCat("draft-", i), absl::StrCat("verifier-", i));
    pair.num_drafts->Increment();
    pair.num_draft_tokens->Increment(4);
  }
  // A pair has 9 series, and each of the two models one pair of others.
  EXPECT_LE(NumSeries(registry) - before, (kMaxPairs + 2) * 9 + 2 * 5);
  EXPECT_GE(NumSeries(registry) - before, kMaxPairs * 9);
  EXPECT_EQ(Sum(registry, metric::kNumDrafts), kNames);
  EXPECT_EQ(Sum(registry, metric::kNumDraftTokens), 4 * kNames);
  const std::string text = registry.Expose();
  EXPECT_THAT(text, HasSubstr("draft_node=\"draft-0\""));
  EXPECT_THAT(text, HasSubstr("draft_node=\"other\""));
  EXPECT_THAT(text, Not(HasSubstr("draft_node=\"draft-9999\"")));
  // Those that came first keep their series.
  one->Pair("draft-0", "verifier-0").num_drafts->Increment();
  EXPECT_THAT(registry.Expose(),
              HasSubstr("num_drafts_total{draft_node=\"draft-0\",model_name="
                        "\"one\",verifier_node=\"verifier-0\"} 2\n"));
}

TEST(CoordinatorMetricsTest, ThousandsOfModelNamesMakeABoundedNumberOfSeries) {
  constexpr int kNames = 2000;
  MetricsRegistry registry;
  CoordinatorMetrics metrics(&registry);
  ModelMetrics* const first = metrics.ForModel("model-0");
  const int64_t of_one = NumSeries(registry);
  for (int i = 0; i < kNames; ++i) {
    metrics.ForModel(absl::StrCat("model-", i))->prompt_tokens->Increment();
  }
  EXPECT_LE(NumSeries(registry), (kMaxModels + 1) * of_one);
  EXPECT_EQ(Sum(registry, metric::kPromptTokens), kNames);
  EXPECT_EQ(metrics.ForModel("model-0"), first);
  EXPECT_EQ(metrics.ForModel("model-1999")->model_name(), metric::kOther);
}

TEST(CoordinatorMetricsTest, FailuresNameTheModelWhereItIsKnown) {
  MetricsRegistry registry;
  CoordinatorMetrics metrics(&registry);
  metrics.OnFailure(absl::NotFoundError("no such model"));
  metrics.OnFailure(absl::CancelledError("gone"), "one");
  const std::string text = registry.Expose();
  EXPECT_THAT(text, HasSubstr("failure_total{code=\"NOT_FOUND\"} 1\n"));
  EXPECT_THAT(
      text,
      HasSubstr("failure_total{code=\"CANCELLED\",model_name=\"one\"} 1\n"));
}

TEST(CoordinatorMetricsTest, EndsAreThereBeforeTheFirst) {
  MetricsRegistry registry;
  CoordinatorMetrics metrics(&registry);
  metrics.ForModel("one");
  EXPECT_THAT(registry.Expose(),
              HasSubstr("specwire_request_success_total{finished_reason="
                        "\"length\",model_name=\"one\"} 0\n"));
}

}  // namespace
}  // namespace specwire::coordinator
