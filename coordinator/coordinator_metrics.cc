// SPDX-License-Identifier: Apache-2.0
#include "coordinator/coordinator_metrics.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/metrics/names.h"
#include "common/rpc/convert.h"

namespace specwire::coordinator {

ModelMetrics::ModelMetrics(MetricsRegistry* registry, std::string model_name)
    : prompt_tokens(registry->AddCounter(metric::kPromptTokens,
                                         "Tokens of prompts that were taken.",
                                         {{metric::kModelName, model_name}})),
      generation_tokens(
          registry->AddCounter(metric::kGenerationTokens,
                               "Tokens that were generated.",
                               {{metric::kModelName, model_name}})),
      num_passes(registry->AddCounter(
          metric::kNumPasses,
          "Verify passes, those without draft tokens included.",
          {{metric::kModelName, model_name}})),
      time_to_first_token(registry->AddHistogram(
          metric::kTimeToFirstToken,
          "From a request's arrival to its first token, in seconds.",
          metric::kTimeToFirstTokenBuckets,
          {{metric::kModelName, model_name}})),
      inter_token_latency(registry->AddHistogram(
          metric::kInterTokenLatency,
          "Time between tokens, in seconds: a pass's time divided by its "
          "tokens, once for each of them.",
          metric::kInterTokenLatencyBuckets,
          {{metric::kModelName, model_name}})),
      queue_time(registry->AddHistogram(
          metric::kRequestQueueTime,
          "From a request's arrival until a verifier began with its prompt, in "
          "seconds.",
          metric::kTimeToFirstTokenBuckets,
          {{metric::kModelName, model_name}})),
      registry_(registry),
      model_name_(std::move(model_name)),
      e2e_latency_(registry->AddHistogram(
          metric::kE2eRequestLatency,
          "From a request's arrival to its end, in seconds.",
          metric::kRequestLatencyBuckets,
          {{metric::kModelName, model_name_}})) {}

PairMetrics ModelMetrics::Pair(const std::string& draft_node,
                               const std::string& verifier_node) {
  const MetricLabels labels = {{metric::kModelName, model_name_},
                               {kDraftNodeLabel, draft_node},
                               {kVerifierNodeLabel, verifier_node}};
  const auto unverified = [&](const char* reason) {
    MetricLabels with_reason = labels;
    with_reason[metric::kReason] = reason;
    return registry_->AddCounter(
        metric::kNumUnverifiedTokens,
        "Draft tokens that were not verified, by reason.",
        with_reason);
  };
  const auto ahead = [&](const char* outcome) {
    MetricLabels with_outcome = labels;
    with_outcome[metric::kOutcome] = outcome;
    return registry_->AddCounter(
        metric::kNumAheadCommits,
        "Commits behind which draft tokens were outstanding, by whether these "
        "still agreed.",
        with_outcome);
  };
  return {
      registry_->AddCounter(
          metric::kNumDrafts, "Verify passes that had draft tokens.", labels),
      registry_->AddCounter(
          metric::kNumDraftTokens, "Draft tokens that were verified.", labels),
      registry_->AddCounter(metric::kNumAcceptedTokens,
                            "Draft tokens that were accepted.",
                            labels),
      unverified(kOverlapped),
      unverified(kStale),
      unverified(kTrimmed),
      unverified(kUnused),
      ahead(kHit),
      ahead(kMiss)};
}

void ModelMetrics::OnAccepted(int num_accepted) {
  for (int i = 0; i < num_accepted && i < kMaxProposalTokens; ++i) {
    std::atomic<Counter*>& place =
        accepted_per_position_[static_cast<size_t>(i)];
    Counter* counter = place.load();
    if (counter == nullptr) {
      // The registry returns the same one to all who ask at once.
      counter = registry_->AddCounter(
          metric::kNumAcceptedTokensPerPos,
          "Accepted draft tokens by their place in the pass.",
          {{metric::kModelName, model_name_},
           {metric::kPosition, absl::StrCat(i)}});
      place = counter;
    }
    counter->Increment();
  }
}

void ModelMetrics::OnSuccess(FinishReason reason, absl::Duration e2e) {
  registry_
      ->AddCounter(
          metric::kRequestSuccess,
          "Requests that ended well.",
          {{metric::kModelName, model_name_},
           {metric::kFinishedReason, std::string(FinishReasonName(reason))}})
      ->Increment();
  e2e_latency_->Observe(absl::ToDoubleSeconds(e2e));
}

void ModelMetrics::OnMigration(const absl::Status& status) {
  registry_
      ->AddCounter(metric::kRequestMigrations,
                   "Requests that moved to another verifier, by the status "
                   "that the first was lost with.",
                   {{metric::kModelName, model_name_},
                    {metric::kReason, absl::StatusCodeToString(status.code())}})
      ->Increment();
}

CoordinatorMetrics::CoordinatorMetrics(MetricsRegistry* registry)
    : running(registry->AddGauge(metric::kNumRequestsRunning,
                                 "Requests that verifiers work on.")),
      waiting(registry->AddGauge(metric::kNumRequestsWaiting,
                                 "Requests that are being prepared.")),
      registry_(registry) {}

ModelMetrics* CoordinatorMetrics::ForModel(const std::string& model_name) {
  MutexLock lock(&mutex_);
  std::unique_ptr<ModelMetrics>& metrics = models_[model_name];
  if (metrics == nullptr) {
    metrics = std::make_unique<ModelMetrics>(registry_, model_name);
  }
  return metrics.get();
}

void CoordinatorMetrics::OnFailure(const absl::Status& status) {
  registry_
      ->AddCounter(metric::kRequestFailure,
                   "Requests that failed, by status code.",
                   {{metric::kCode, absl::StatusCodeToString(status.code())}})
      ->Increment();
}

}  // namespace specwire::coordinator
