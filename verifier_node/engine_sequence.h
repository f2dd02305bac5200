// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/model/engine.h"
#include "verifier_node/admission.h"
#include "verifier_node/batch_planner.h"
#include "verifier_node/decode_events.h"
#include "verifier_node/local_drafter.h"
#include "verifier_node/target_sampler.h"
#include "verifier_node/verify_sequence.h"

namespace specwire::verifier {

// The positions of given tokens, [begin, end), whose log-probabilities are
// wanted; begin >= 1.
struct WantedLogprobs {
  int begin = 1;
  int end = 0;
  int top = 0;
};

// What a sequence that decodes has.
struct Decoding {
  std::shared_ptr<DecodeSink> sink;
  VerifySequence verify;
  TargetSampler sampler;
  // Candidates for each committed token, if its log-probability is wanted.
  std::optional<int> logprobs = std::nullopt;
  // Its commits tell of draft tokens and probabilities.
  bool trace = false;
  // When it last took in draft tokens, if it is traced.
  absl::Time last_received = absl::InfinitePast();
  // What the metrics have of its counters.
  DecodeCounters counted = {};
  // All tokens that it was opened with, but perhaps the last, were computed.
  bool prefilled = false;
  // It has sent a commit.
  bool responded = false;
  bool peer_done = false;
  // When its latest step ended, or it was started.
  absl::Time previous_step_end = absl::InfinitePast();
  // See OpenSequence.
  absl::Duration max_silence = absl::InfiniteDuration();
  // It waits without limit for a proposal at this length, as far as was looked;
  // 0: it does not.
  size_t waits_at = 0;
  absl::Time waits_since = absl::InfinitePast();
  int cached_prompt_tokens = 0;
  // Makes its local drafts; null: it has none.
  std::unique_ptr<LocalSequence> local = nullptr;

  // Finds the local draft for the next step, or, where a model is to make it
  // at these prices, what to expect of it.
  void FindDraft(const LocalPrices& prices, LocalDrafter* drafter);
};

// One stream of the engine thread: a sequence that decodes, or a text that is
// scored. It waits in the queue or, if it has a KV sequence, runs.
struct EngineSequence {
  uint64_t stream = 0;
  // In the order of arrival.
  int64_t arrival = 0;
  int32_t priority = 0;
  std::string cache_salt = {};
  // Who is charged for it, and in whose share: the user, and the user's tenant.
  std::string user = {};
  std::string tenant = {};
  // When it came into the queue, last.
  absl::Time queued_at;
  // How long it was in the queue, all in all.
  absl::Duration queued_for;
  // When it first had a place.
  absl::Time started_at;
  int num_preemptions = 0;
  // Number of the latest pass that it had part in.
  int64_t last_pass = 0;
  std::unique_ptr<KvSequence> kv = nullptr;
  // Of its given tokens, those whose log-probabilities are yet to be sent.
  WantedLogprobs wanted = {};

  // One of the two.
  std::unique_ptr<Decoding> decoding = nullptr;
  std::unique_ptr<OpenScore> score = nullptr;

  bool running() const { return kv != nullptr; }
  // All tokens that it has.
  absl::Span<const int32_t> tokens() const;
  // Tokens that have to be computed: nothing follows a scored text's last one.
  int num_to_compute() const;
  // Of them, those that are not cached.
  int num_uncomputed() const;
  // Completion tokens.
  int64_t num_committed() const;
  // It has no credit.
  bool IsBlocked(absl::Time now) const;
  Standing standing(const FairShare& users, const FairShare& tenants) const;
  VictimCandidate victim(absl::Time now) const;
  // Its part in the next pass as far as it alone decides.
  // REQUIRES: running, num_uncomputed() >= 1.
  PassCandidate Candidate() const;
};

}  // namespace specwire::verifier
