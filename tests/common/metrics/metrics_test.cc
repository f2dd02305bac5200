// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metrics.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "common/metrics/names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

using testing::HasSubstr;

TEST(MetricsRegistryTest, ExposesCountersWithAllLabels) {
  MetricsRegistry registry(MetricLabels{{metric::kNodeRole, "coordinator"}});
  Counter* stopped = registry.AddCounter(metric::kRequestSuccess,
                                         "Requests that ended well.",
                                         {{metric::kFinishedReason, "stop"}});
  stopped->Increment();
  stopped->Increment(2);
  EXPECT_EQ(stopped->value(), 3);
  EXPECT_THAT(
      registry.Expose(),
      HasSubstr("# HELP specwire_request_success_total Requests that ended "
                "well.\n"
                "# TYPE specwire_request_success_total counter\n"
                "specwire_request_success_total{node_role=\"coordinator\","
                "finished_reason=\"stop\"} 3\n"));
}

TEST(MetricsRegistryTest, TheSameSeriesIsTheSameObject) {
  MetricsRegistry registry;
  Counter* one = registry.AddCounter("a_total", "A.", {{"x", "1"}});
  EXPECT_EQ(registry.AddCounter("a_total", "A.", {{"x", "1"}}), one);
  EXPECT_NE(registry.AddCounter("a_total", "A.", {{"x", "2"}}), one);
  EXPECT_EQ(registry.AddGauge("g", "G."), registry.AddGauge("g", "G."));
}

TEST(MetricsRegistryTest, CountersAreReadWithAllLabels) {
  MetricsRegistry registry(MetricLabels{{"node_role", "coordinator"}});
  registry.AddCounter("a_total", "Help.", {{"reason", "x"}})->Increment(2);
  registry.AddCounter("a_total", "Help.", {{"reason", "y"}})->Increment(3);
  registry.AddGauge("b", "Help.")->Set(7);
  double sum = 0;
  for (const CounterValue& counter : registry.ReadCounters()) {
    EXPECT_EQ(counter.name, "a_total");
    EXPECT_EQ(counter.labels.at("node_role"), "coordinator");
    EXPECT_EQ(counter.value, counter.labels.at("reason") == "x" ? 2 : 3);
    sum += counter.value;
  }
  EXPECT_EQ(sum, 5);
}

TEST(MetricsRegistryTest, ExposesGauges) {
  MetricsRegistry registry;
  Gauge* gauge = registry.AddGauge(metric::kNumRequestsRunning, "Running.");
  gauge->Set(5);
  gauge->Add(-2);
  EXPECT_THAT(registry.Expose(),
              HasSubstr("\nspecwire_num_requests_running 3\n"));
}

TEST(MetricsRegistryTest, CallbackGaugesAreReadEachTime) {
  MetricsRegistry registry;
  double value = 0.25;
  registry.AddCallbackGauge(
      metric::kKvCacheUsage, "Share in use.", {}, [&] { return value; });
  EXPECT_THAT(registry.Expose(),
              HasSubstr("\nspecwire_kv_cache_usage_ratio 0.25\n"));
  value = 0.5;
  EXPECT_THAT(registry.Expose(),
              HasSubstr("\nspecwire_kv_cache_usage_ratio 0.5\n"));
}

TEST(MetricsRegistryTest, HistogramsCountUpToTheirBounds) {
  MetricsRegistry registry;
  Histogram* histogram =
      registry.AddHistogram(metric::kTimeToFirstToken,
                            "Time to the first token.",
                            metric::kTimeToFirstTokenBuckets);
  histogram->Observe(0.005);
  histogram->ObserveMany(0.5, 3);
  histogram->Observe(5000);
  const std::string text = registry.Expose();
  const std::string name = "specwire_time_to_first_token_seconds";
  EXPECT_THAT(text, HasSubstr(name + "_count 5\n"));
  EXPECT_THAT(text, HasSubstr(name + "_bucket{le=\"0.001\"} 0\n"));
  EXPECT_THAT(text, HasSubstr(name + "_bucket{le=\"0.005\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(name + "_bucket{le=\"0.5\"} 4\n"));
  EXPECT_THAT(text, HasSubstr(name + "_bucket{le=\"2560\"} 4\n"));
  EXPECT_THAT(text, HasSubstr(name + "_bucket{le=\"+Inf\"} 5\n"));
}

TEST(MetricsRegistryTest, LabelValuesAreEscaped) {
  MetricsRegistry registry;
  registry.AddGauge("g", "G.", {{"x", "a\"b\nc\\d"}})->Set(1);
  EXPECT_THAT(registry.Expose(), HasSubstr("g{x=\"a\\\"b\\nc\\\\d\"} 1\n"));
}

TEST(MetricsRegistryTest, BuildInfoNamesTheVersion) {
  MetricsRegistry registry;
  AddBuildInfo(&registry);
  EXPECT_THAT(registry.Expose(),
              testing::ContainsRegex("specwire_build_info\\{version=\"[0-9]+\\."
                                     "[0-9]+\\.[0-9]+\"\\} 1\n"));
}

TEST(MetricsRegistryTest, CountsFromManyThreads) {
  MetricsRegistry registry;
  Counter* counter = registry.AddCounter("n_total", "N.");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) {
        counter->Increment();
        if (i % 1000 == 0) registry.Expose();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(registry.Expose(), HasSubstr("\nn_total 40000\n"));
}

TEST(MetricNamesTest, BucketsAscend) {
  const auto ascends = [](auto begin, auto end) {
    return std::adjacent_find(begin, end, std::greater_equal<>()) == end;
  };
  EXPECT_TRUE(ascends(std::begin(metric::kTimeToFirstTokenBuckets),
                      std::end(metric::kTimeToFirstTokenBuckets)));
  EXPECT_TRUE(ascends(std::begin(metric::kInterTokenLatencyBuckets),
                      std::end(metric::kInterTokenLatencyBuckets)));
  EXPECT_TRUE(ascends(std::begin(metric::kRequestLatencyBuckets),
                      std::end(metric::kRequestLatencyBuckets)));
  EXPECT_TRUE(ascends(std::begin(metric::kStepDurationBuckets),
                      std::end(metric::kStepDurationBuckets)));
  EXPECT_TRUE(ascends(std::begin(metric::kBatchSizeBuckets),
                      std::end(metric::kBatchSizeBuckets)));
}

}  // namespace
}  // namespace specwire
