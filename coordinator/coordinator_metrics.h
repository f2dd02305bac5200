// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/drafting/messages.h"
#include "common/metrics/metrics.h"
#include "common/sampling/params.h"

namespace specwire::coordinator {

// Label names that only the coordinator has.
inline constexpr char kDraftNodeLabel[] = "draft_node";
inline constexpr char kVerifierNodeLabel[] = "verifier_node";
// Values of the label metric::kReason of draft tokens that were not verified.
inline constexpr char kOverlapped[] = "overlapped";
inline constexpr char kStale[] = "stale";
inline constexpr char kTrimmed[] = "trimmed";
inline constexpr char kUnused[] = "unused";
// Values of the label metric::kOutcome of commits behind which draft tokens
// were outstanding.
inline constexpr char kHit[] = "hit";
inline constexpr char kMiss[] = "miss";

// Nodes come and go, under names of their own: so many pairs of a drafter and a
// verifier have series, and so many models; what comes later is counted with
// the names metric::kOther.
inline constexpr int kMaxPairs = 1024;
inline constexpr int kMaxModels = 32;

// Acceptance of one drafter with one verifier for one model. There is no sum
// over pairs beside it: whoever reads adds the series up.
struct PairMetrics {
  Counter* num_drafts;
  Counter* num_draft_tokens;
  Counter* num_accepted_tokens;
  // Draft tokens that were not verified, by reason.
  Counter* num_overlapped_tokens;
  Counter* num_stale_tokens;
  Counter* num_trimmed_tokens;
  Counter* num_unused_tokens;
  // Commits by what became of draft tokens outstanding behind them.
  Counter* num_ahead_hits;
  Counter* num_ahead_misses;
};

// What requests to one model did.
//
// Thread safety: any thread.
class ModelMetrics {
 public:
  // `pairs_left`: how many more pairs may have series, whatever their model.
  ModelMetrics(MetricsRegistry* registry,
               std::string model_name,
               std::atomic<int>* pairs_left);

  // The same counters for the same names.
  PairMetrics Pair(const std::string& draft_node,
                   const std::string& verifier_node);
  // A pass accepted `num_accepted` draft tokens.
  void OnAccepted(int num_accepted);
  // A request that ended well.
  void OnSuccess(FinishReason reason, absl::Duration e2e);
  // A request moved to another verifier after the first was lost so.
  void OnMigration(const absl::Status& status);
  // The name in the label, metric::kOther beyond kMaxModels.
  const std::string& model_name() const { return model_name_; }

  // Requests that verifiers work on.
  Gauge* const running;
  Counter* const prompt_tokens;
  Counter* const generation_tokens;
  Counter* const num_passes;
  Histogram* const time_to_first_token;
  Histogram* const inter_token_latency;
  Histogram* const queue_time;
  // From a choice's first step to its first token, and from there to its last.
  Histogram* const prefill_time;
  Histogram* const decode_time;
  // Tokens of requests' prompts, and of each choice.
  Histogram* const request_prompt_tokens;
  Histogram* const request_generation_tokens;
  // Of steps that waited for a proposal: from the commit before until it was
  // passed on, and the rest of the wait.
  Histogram* const draft_duration;
  Histogram* const network_duration;

 private:
  Counter* Success(FinishReason reason);
  Counter* Migrations(absl::StatusCode code);
  PairMetrics MakePair(const std::string& draft_node,
                       const std::string& verifier_node);

  MetricsRegistry* const registry_;
  const std::string model_name_;
  std::atomic<int>* const pairs_left_;
  Histogram* const e2e_latency_;
  // By place in the pass; made when first needed.
  std::array<std::atomic<Counter*>, kMaxProposalTokens> accepted_per_position_ =
      {};
  Mutex mutex_;
  // By draft node and verifier.
  std::map<std::pair<std::string, std::string>, PairMetrics> pairs_
      ABSL_GUARDED_BY(mutex_);
};

// The coordinator's own series.
//
// Thread safety: any thread.
class CoordinatorMetrics {
 public:
  explicit CoordinatorMetrics(MetricsRegistry* registry);

  // The same object for the same name; lives as long as this.
  ModelMetrics* ForModel(const std::string& model_name);
  // A request failed; `model_name` is empty if it is not known.
  void OnFailure(const absl::Status& status,
                 const std::string& model_name = "");
  // Requests that verifiers work on, of all models.
  double NumRunning() const;

  // Requests that are being prepared.
  Gauge* const waiting;
  // What clients send and are sent, and what nodes are sent.
  Counter* const generate_request_bytes;
  Counter* const generate_response_bytes;
  Counter* const decode_bytes;
  Counter* const draft_bytes;

 private:
  MetricsRegistry* const registry_;
  std::atomic<int> pairs_left_ = kMaxPairs;
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<ModelMetrics>> models_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace specwire::coordinator
