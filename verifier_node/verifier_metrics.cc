// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/verifier_metrics.h"

#include <string>

#include "common/metrics/names.h"

namespace specwire::verifier {
namespace {

Counter* Rows(MetricsRegistry* registry, const char* stage) {
  return registry->AddCounter(metric::kNumRows,
                              "Rows that the engine computed.",
                              {{metric::kStage, stage}});
}

Counter* Unverified(MetricsRegistry* registry, const char* reason) {
  return registry->AddCounter(metric::kNumUnverifiedTokens,
                              "Draft tokens that were not verified.",
                              {{metric::kReason, reason}});
}

Histogram* Duration(MetricsRegistry* registry, const char* stage) {
  return registry->AddHistogram(metric::kStepDuration,
                                "Time of one step.",
                                metric::kStepDurationBuckets,
                                {{metric::kStage, stage}});
}

}  // namespace

VerifierMetrics::VerifierMetrics(MetricsRegistry* registry)
    : registry_(registry),
      num_drafts_(registry->AddCounter(metric::kNumDrafts,
                                       "Passes that had draft tokens.")),
      num_draft_tokens_(registry->AddCounter(
          metric::kNumDraftTokens, "Draft tokens that were verified.")),
      num_accepted_(registry->AddCounter(metric::kNumAcceptedTokens,
                                         "Draft tokens that were accepted.")),
      prompt_tokens_(registry->AddCounter(
          metric::kPromptTokens,
          "Tokens that sequences were opened with, once they are computed.")),
      generation_tokens_(registry->AddCounter(metric::kGenerationTokens,
                                              "Tokens that were committed.")),
      prefill_rows_(Rows(registry, "prefill")),
      verify_rows_(Rows(registry, "verify")),
      overlapped_(Unverified(registry, "overlapped")),
      stale_(Unverified(registry, "stale")),
      trimmed_(Unverified(registry, "trimmed")),
      unused_(Unverified(registry, "unused")),
      preemptions_(registry->AddCounter(
          metric::kNumPreemptions,
          "Sequences that were made to wait to free their KV blocks.")),
      prefix_queries_(
          registry->AddCounter(metric::kPrefixCacheQueries,
                               "Tokens looked up in the prefix cache.")),
      prefix_hits_(registry->AddCounter(metric::kPrefixCacheHits,
                                        "Tokens found in the prefix cache.")),
      queue_time_(registry->AddHistogram(metric::kRequestQueueTime,
                                         "From a sequence's arrival here to "
                                         "its place among those that compute.",
                                         metric::kRequestLatencyBuckets)),
      batch_size_(registry->AddHistogram(metric::kVerifyBatchSize,
                                         "Sequences in a pass.",
                                         metric::kBatchSizeBuckets)),
      prefill_duration_(Duration(registry, "prefill")),
      verify_duration_(Duration(registry, "verify")),
      accept_duration_(Duration(registry, "accept")) {}

void VerifierMetrics::OnPass(int num_sequences,
                             bool steps,
                             absl::Duration duration,
                             absl::Duration accept) {
  (steps ? verify_duration_ : prefill_duration_)
      ->Observe(absl::ToDoubleSeconds(duration));
  batch_size_->Observe(num_sequences);
  if (steps) accept_duration_->Observe(absl::ToDoubleSeconds(accept));
}

void VerifierMetrics::OnLocalDraft(absl::Duration duration) {
  if (draft_duration_ == nullptr) {
    draft_duration_ = Duration(registry_, "draft");
  }
  draft_duration_->Observe(absl::ToDoubleSeconds(duration));
}

void VerifierMetrics::OnPrefill(int num_rows) {
  prefill_rows_->Increment(num_rows);
}

void VerifierMetrics::OnPrefilled(int num_tokens) {
  prompt_tokens_->Increment(num_tokens);
}

void VerifierMetrics::OnStep(const Commit& commit) {
  verify_rows_->Increment(commit.num_proposed + 1);
  generation_tokens_->Increment(static_cast<double>(commit.tokens.size()));
  if (commit.num_proposed == 0) return;
  num_drafts_->Increment();
  num_draft_tokens_->Increment(commit.num_proposed);
  num_accepted_->Increment(commit.num_accepted);
  for (int i = 0; i < commit.num_accepted; ++i) {
    AcceptedAt(i)->Increment();
  }
}

void VerifierMetrics::OnStarted(absl::Duration wait) {
  queue_time_->Observe(absl::ToDoubleSeconds(wait));
}

void VerifierMetrics::OnPreempted() { preemptions_->Increment(); }

void VerifierMetrics::OnPrefixQuery(int num_tokens, int num_cached) {
  prefix_queries_->Increment(num_tokens);
  prefix_hits_->Increment(num_cached);
}

void VerifierMetrics::OnUnverified(const DecodeCounters& added,
                                   int num_unused) {
  overlapped_->Increment(static_cast<double>(added.overlapped));
  stale_->Increment(static_cast<double>(added.stale));
  trimmed_->Increment(static_cast<double>(added.trimmed));
  unused_->Increment(num_unused);
}

Counter* VerifierMetrics::AcceptedAt(int position) {
  while (accepted_at_.size() <= static_cast<size_t>(position)) {
    accepted_at_.push_back(registry_->AddCounter(
        metric::kNumAcceptedTokensPerPos,
        "Draft tokens that were accepted, by place in the pass.",
        {{metric::kPosition, std::to_string(accepted_at_.size())}}));
  }
  return accepted_at_[static_cast<size_t>(position)];
}

}  // namespace specwire::verifier
