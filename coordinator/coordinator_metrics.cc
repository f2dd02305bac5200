// SPDX-License-Identifier: Apache-2.0
#include "coordinator/coordinator_metrics.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/metrics/names.h"
#include "common/metrics/rpc_bytes.h"
#include "common/rpc/convert.h"

namespace specwire::coordinator {
namespace {

Histogram* StepDuration(MetricsRegistry* registry,
                        const std::string& model_name,
                        const char* stage) {
  return registry->AddHistogram(
      metric::kStepDuration,
      "Time of one step, by stage, in seconds.",
      metric::kStepDurationBuckets,
      {{metric::kModelName, model_name}, {metric::kStage, stage}});
}

// What alarms ask for: rates need a 0 to begin at.
constexpr absl::StatusCode kUsualFailures[] = {
    absl::StatusCode::kCancelled,
    absl::StatusCode::kDeadlineExceeded,
    absl::StatusCode::kInternal,
    absl::StatusCode::kInvalidArgument,
    absl::StatusCode::kResourceExhausted,
    absl::StatusCode::kUnavailable};

std::string CodeName(absl::StatusCode code) {
  return absl::StatusCodeToString(code);
}

// `model_name` may be empty.
Counter* Failures(MetricsRegistry* registry,
                  absl::StatusCode code,
                  const std::string& model_name) {
  MetricLabels labels = {{metric::kCode, CodeName(code)}};
  if (!model_name.empty()) labels[metric::kModelName] = model_name;
  return registry->AddCounter(
      metric::kRequestFailure, "Requests that failed, by status code.", labels);
}

}  // namespace

ModelMetrics::ModelMetrics(MetricsRegistry* registry,
                           std::string model_name,
                           std::atomic<int>* pairs_left)
    : running(registry->AddGauge(metric::kNumRequestsRunning,
                                 "Requests that verifiers work on.",
                                 {{metric::kModelName, model_name}})),
      prompt_tokens(registry->AddCounter(metric::kPromptTokens,
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
          "From a request's arrival to a choice's first token, in seconds.",
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
      prefill_time(registry->AddHistogram(
          metric::kRequestPrefillTime,
          "From when a verifier began with the prompt to the first token, in "
          "seconds.",
          metric::kTimeToFirstTokenBuckets,
          {{metric::kModelName, model_name}})),
      decode_time(registry->AddHistogram(
          metric::kRequestDecodeTime,
          "From a choice's first token to its last, in seconds.",
          metric::kRequestLatencyBuckets,
          {{metric::kModelName, model_name}})),
      request_prompt_tokens(
          registry->AddHistogram(metric::kRequestPromptTokens,
                                 "Tokens of a request's prompt.",
                                 metric::kTokensBuckets,
                                 {{metric::kModelName, model_name}})),
      request_generation_tokens(
          registry->AddHistogram(metric::kRequestGenerationTokens,
                                 "Tokens that were generated for a choice.",
                                 metric::kTokensBuckets,
                                 {{metric::kModelName, model_name}})),
      draft_duration(StepDuration(registry, model_name, "draft")),
      network_duration(StepDuration(registry, model_name, "network")),
      registry_(registry),
      model_name_(std::move(model_name)),
      pairs_left_(pairs_left),
      e2e_latency_(registry->AddHistogram(
          metric::kE2eRequestLatency,
          "From a request's arrival to its end, in seconds.",
          metric::kRequestLatencyBuckets,
          {{metric::kModelName, model_name_}})) {
  // Rates need a 0 to begin at.
  Success(FinishReason::kStop);
  Success(FinishReason::kLength);
  Migrations(absl::StatusCode::kUnavailable);
  for (const absl::StatusCode code : kUsualFailures) {
    Failures(registry, code, model_name_);
  }
}

PairMetrics ModelMetrics::Pair(const std::string& draft_node,
                               const std::string& verifier_node) {
  MutexLock lock(&mutex_);
  const auto found = pairs_.find({draft_node, verifier_node});
  if (found != pairs_.end()) return found->second;
  if (pairs_left_->fetch_sub(1) <= 0) {
    // It does not go down for ever.
    pairs_left_->fetch_add(1);
    return MakePair(metric::kOther, metric::kOther);
  }
  const PairMetrics pair = MakePair(draft_node, verifier_node);
  pairs_[{draft_node, verifier_node}] = pair;
  return pair;
}

PairMetrics ModelMetrics::MakePair(const std::string& draft_node,
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

Counter* ModelMetrics::Success(FinishReason reason) {
  return registry_->AddCounter(
      metric::kRequestSuccess,
      "Requests that ended well.",
      {{metric::kModelName, model_name_},
       {metric::kFinishedReason, std::string(FinishReasonName(reason))}});
}

void ModelMetrics::OnSuccess(FinishReason reason, absl::Duration e2e) {
  Success(reason)->Increment();
  e2e_latency_->Observe(absl::ToDoubleSeconds(e2e));
}

Counter* ModelMetrics::Migrations(absl::StatusCode code) {
  return registry_->AddCounter(
      metric::kRequestMigrations,
      "Sequences that moved to another verifier, by "
      "the status that the first was lost with.",
      {{metric::kModelName, model_name_}, {metric::kReason, CodeName(code)}});
}

void ModelMetrics::OnMigration(const absl::Status& status) {
  Migrations(status.code())->Increment();
}

CoordinatorMetrics::CoordinatorMetrics(MetricsRegistry* registry)
    : waiting(registry->AddGauge(metric::kNumRequestsWaiting,
                                 "Requests that are being prepared.")),
      generate_request_bytes(
          AddRpcBytes(registry, "Generate", metric::kRequest)),
      generate_response_bytes(
          AddRpcBytes(registry, "Generate", metric::kResponse)),
      decode_bytes(AddRpcBytes(registry, "Decode", metric::kRequest)),
      draft_bytes(AddRpcBytes(registry, "Draft", metric::kRequest)),
      registry_(registry) {
  for (const absl::StatusCode code : kUsualFailures) {
    Failures(registry, code, "");
  }
}

ModelMetrics* CoordinatorMetrics::ForModel(const std::string& model_name) {
  MutexLock lock(&mutex_);
  const auto found = models_.find(model_name);
  if (found != models_.end()) return found->second.get();
  const bool room = models_.size() < kMaxModels;
  const std::string name = room ? model_name : metric::kOther;
  std::unique_ptr<ModelMetrics>& metrics = models_[name];
  if (metrics == nullptr) {
    metrics = std::make_unique<ModelMetrics>(registry_, name, &pairs_left_);
  }
  return metrics.get();
}

double CoordinatorMetrics::NumRunning() const {
  MutexLock lock(&mutex_);
  double sum = 0;
  for (const auto& [name, model] : models_) sum += model->running->value();
  return sum;
}

void CoordinatorMetrics::OnFailure(const absl::Status& status,
                                   const std::string& model_name) {
  Failures(registry_, status.code(), model_name)->Increment();
}

}  // namespace specwire::coordinator
