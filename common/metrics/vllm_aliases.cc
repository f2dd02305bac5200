// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/vllm_aliases.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/metrics/names.h"
#include "prometheus/client_metric.h"

namespace specwire {
namespace {

using Label = prometheus::ClientMetric::Label;

constexpr absl::string_view kOurs = "specwire_";
constexpr absl::string_view kTheirs = "vllm:";

// Those that have the same name behind the prefix.
constexpr const char* kSameName[] = {
    metric::kNumDrafts,           metric::kNumDraftTokens,
    metric::kNumAcceptedTokens,   metric::kNumAcceptedTokensPerPos,
    metric::kPromptTokens,        metric::kGenerationTokens,
    metric::kRequestSuccess,      metric::kNumPreemptions,
    metric::kPrefixCacheQueries,  metric::kPrefixCacheHits,
    metric::kNumRequestsRunning,  metric::kNumRequestsWaiting,
    metric::kTimeToFirstToken,    metric::kInterTokenLatency,
    metric::kE2eRequestLatency,   metric::kRequestQueueTime,
    metric::kRequestPrefillTime,  metric::kRequestDecodeTime,
    metric::kRequestPromptTokens, metric::kRequestGenerationTokens};

// vLLM's name; empty if it has no such metric.
std::string AliasOf(const std::string& name) {
  if (name == metric::kKvCacheUsage) {
    return absl::StrCat(kTheirs, "kv_cache_usage_perc");
  }
  if (std::find(std::begin(kSameName), std::end(kSameName), name) ==
      std::end(kSameName)) {
    return "";
  }
  return absl::StrCat(kTheirs, absl::StripPrefix(name, kOurs));
}

bool Stays(const Label& label) {
  return label.name == metric::kModelName || label.name == metric::kNodeRole ||
         label.name == metric::kPosition ||
         label.name == metric::kFinishedReason;
}

void Add(const prometheus::ClientMetric& from, prometheus::ClientMetric* to) {
  to->counter.value += from.counter.value;
  to->gauge.value += from.gauge.value;
  to->histogram.sample_count += from.histogram.sample_count;
  to->histogram.sample_sum += from.histogram.sample_sum;
  // Series of one name have the same buckets.
  std::vector<prometheus::ClientMetric::Bucket>& buckets = to->histogram.bucket;
  if (buckets.empty()) {
    buckets = from.histogram.bucket;
    return;
  }
  for (size_t i = 0; i < std::min(buckets.size(), from.histogram.bucket.size());
       ++i) {
    buckets[i].cumulative_count += from.histogram.bucket[i].cumulative_count;
  }
}

prometheus::MetricFamily MakeAlias(const prometheus::MetricFamily& family,
                                   std::string name) {
  prometheus::MetricFamily alias;
  alias.name = std::move(name);
  alias.help = family.help;
  alias.type = family.type;
  // By the labels that stay.
  std::map<std::vector<Label>, prometheus::ClientMetric> sums;
  for (const prometheus::ClientMetric& metric : family.metric) {
    std::vector<Label> labels = {{"engine", "0"}};
    std::copy_if(metric.label.begin(),
                 metric.label.end(),
                 std::back_inserter(labels),
                 Stays);
    std::sort(labels.begin(), labels.end());
    Add(metric, &sums[std::move(labels)]);
  }
  for (auto& [labels, sum] : sums) {
    sum.label = labels;
    alias.metric.push_back(std::move(sum));
  }
  return alias;
}

}  // namespace

void AppendVllmAliases(std::vector<prometheus::MetricFamily>* families) {
  std::vector<prometheus::MetricFamily> aliases;
  for (const prometheus::MetricFamily& family : *families) {
    std::string name = AliasOf(family.name);
    if (name.empty() || family.metric.empty()) continue;
    aliases.push_back(MakeAlias(family, std::move(name)));
  }
  std::move(aliases.begin(), aliases.end(), std::back_inserter(*families));
}

}  // namespace specwire
