// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/time/time.h"
#include "common/drafting/messages.h"
#include "common/metrics/metrics.h"

namespace specwire::verifier {

// What a verifier counts while it works. Gauges that are read on demand (KV
// cache, sequences) are added by the program.
//
// Thread safety: one thread at a time, the engine's.
// Lifetime: the registry must outlive it.
class VerifierMetrics {
 public:
  explicit VerifierMetrics(MetricsRegistry* registry);

  // A pass with a part for each of so many sequences; `steps` if one of them
  // decided tokens in it.
  // `accept` is the part of its time in which tokens were decided.
  void OnPass(int num_sequences,
              bool steps,
              absl::Duration duration,
              absl::Duration accept);
  // The verifier's own drafter has worked for so long.
  void OnLocalDraft(absl::Duration duration);
  // Rows of a prompt in a pass.
  void OnPrefill(int num_rows);
  // A sequence's prompt, and what was generated of it elsewhere, is computed.
  void OnPrefilled(int num_tokens);
  // One sequence's step.
  void OnStep(const Commit& commit);
  // A sequence has left the queue for the first time.
  void OnStarted(absl::Duration wait);
  void OnPreempted();
  // Of that many tokens the prefix cache had some.
  void OnPrefixQuery(int num_tokens, int num_cached);
  // Draft tokens that were not verified.
  void OnUnverified(const DecodeCounters& added, int num_unused);

 private:
  Counter* AcceptedAt(int position);

  MetricsRegistry* const registry_;
  Counter* const num_drafts_;
  Counter* const num_draft_tokens_;
  Counter* const num_accepted_;
  Counter* const prompt_tokens_;
  Counter* const generation_tokens_;
  Counter* const prefill_rows_;
  Counter* const verify_rows_;
  Counter* const overlapped_;
  Counter* const stale_;
  Counter* const trimmed_;
  Counter* const unused_;
  Counter* const preemptions_;
  Counter* const prefix_queries_;
  Counter* const prefix_hits_;
  Histogram* const queue_time_;
  Histogram* const batch_size_;
  Histogram* const prefill_duration_;
  Histogram* const verify_duration_;
  Histogram* const accept_duration_;
  // Made when the verifier's own drafter first works.
  Histogram* draft_duration_ = nullptr;
  // By position in the pass; a position's is made when it is first needed.
  std::vector<Counter*> accepted_at_;
};

}  // namespace specwire::verifier
