// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metrics.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/metrics/names.h"
#include "common/metrics/process_metrics.h"
#include "common/metrics/rpc_bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

using testing::HasSubstr;
using testing::Not;

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

TEST(MetricsRegistryTest, CallbackCountersNeverFall) {
  MetricsRegistry registry;
  double value = 2;
  registry.AddCallbackCounter("c_total", "C.", {}, [&] { return value; });
  EXPECT_THAT(registry.Expose(), HasSubstr("\nc_total 2\n"));
  value = 5;
  EXPECT_THAT(registry.Expose(), HasSubstr("\nc_total 5\n"));
  value = 4;
  EXPECT_THAT(registry.Expose(), HasSubstr("\nc_total 5\n"));
}

TEST(MetricsRegistryTest, RepeatsUnderVllmsNamesOnlyWhenAsked) {
  MetricsRegistry registry(MetricLabels{{metric::kNodeRole, "coordinator"}});
  const auto add = [&](const char* draft_node, int count) {
    registry
        .AddCounter(metric::kNumDrafts,
                    "Drafts.",
                    {{metric::kModelName, "m"}, {"draft_node", draft_node}})
        ->Increment(count);
  };
  add("a", 3);
  add("b", 4);
  registry.AddGauge(metric::kKvCacheUsage, "Used.")->Set(0.5);
  registry.AddGauge(metric::kNodes, "Nodes.")->Set(1);
  constexpr double kBuckets[] = {1, 2};
  for (const char* model : {"m", "n"}) {
    registry
        .AddHistogram(metric::kTimeToFirstToken,
                      "Time.",
                      kBuckets,
                      {{metric::kModelName, model}})
        ->Observe(2);
  }
  EXPECT_THAT(registry.Expose(), Not(HasSubstr("vllm:")));
  const std::string before = registry.Expose();
  registry.RepeatForVllm();
  const std::string text = registry.Expose();
  EXPECT_THAT(text, testing::StartsWith(before));
  // What vLLM has no label for is added up.
  EXPECT_THAT(
      text,
      HasSubstr("# TYPE vllm:spec_decode_num_drafts_total counter\n"
                "vllm:spec_decode_num_drafts_total{engine=\"0\",model_name="
                "\"m\",node_role=\"coordinator\"} 7\n"));
  EXPECT_THAT(text,
              HasSubstr("vllm:kv_cache_usage_perc{engine=\"0\",node_role="
                        "\"coordinator\"} 0.5\n"));
  EXPECT_THAT(text,
              HasSubstr("vllm:time_to_first_token_seconds_bucket{engine=\"0\","
                        "model_name=\"n\",node_role=\"coordinator\",le=\"1\"} "
                        "0\n"));
  EXPECT_THAT(text,
              HasSubstr("vllm:time_to_first_token_seconds_count{engine=\"0\","
                        "model_name=\"n\",node_role=\"coordinator\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("vllm:nodes")));
  // The counters that others read are not told twice.
  for (const CounterValue& counter : registry.ReadCounters()) {
    EXPECT_THAT(counter.name, testing::StartsWith("specwire_"));
  }
}

TEST(ProcessMetricsTest, TellOfThisProcess) {
  MetricsRegistry registry;
  AddProcessMetrics(&registry);
  const std::string text = registry.Expose();
  const auto value = [&](const std::string& name) {
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos
               ? -1.0
               : std::stod(text.substr(at + name.size() + 2));
  };
  EXPECT_GT(value("process_cpu_seconds_total"), 0);
  EXPECT_GT(value("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(value("process_open_fds"), 3);
  EXPECT_GE(value("process_max_fds"), value("process_open_fds"));
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_NEAR(value("process_start_time_seconds"), now, 600);
}

TEST(RpcBytesTest, HasASeriesForEachDirection) {
  MetricsRegistry registry;
  AddRpcBytes(&registry, "Decode", metric::kRequest)->Increment(10);
  AddRpcBytes(&registry, "Decode", metric::kResponse)->Increment(20);
  const std::string text = registry.Expose();
  EXPECT_THAT(text,
              HasSubstr("specwire_rpc_bytes_total{direction=\"request\",method="
                        "\"Decode\"} 10\n"));
  EXPECT_THAT(text,
              HasSubstr("specwire_rpc_bytes_total{direction=\"response\","
                        "method=\"Decode\"} 20\n"));
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
