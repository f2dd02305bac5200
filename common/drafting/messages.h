// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/sampling/logprobs.h"
#include "common/sampling/params.h"
#include "common/sampling/ratio.h"

namespace specwire {

// Everything about tokens that crosses a link is a run: a position and the
// tokens from there on. A *position* is an index in prompt + completion.

// Most draft tokens in one proposal, whoever sends it.
inline constexpr int kMaxProposalTokens = 256;
// Largest run_length and window that a drafter is asked for.
inline constexpr int kMaxRunLength = 32;
inline constexpr int kMaxWindow = 256;

// How a proposal came about, for a traced request.
struct ProposalTrace {
  // For each of its tokens the estimated chance that it is accepted, given that
  // all before it are; empty if that is not known of all.
  std::vector<float> chances;
  // What the drafter computed for the sequence since its proposal before.
  absl::Duration drafting;
  // Since the drafter took in what the proposal goes by.
  absl::Duration held;
};

// A run of draft tokens. Empty tokens: nothing to propose, decode plainly now.
struct Proposal {
  // Number of the draft stream; the coordinator raises it with each new one.
  int32_t source = 0;
  int32_t position = 0;
  // Committed length that the drafter had seen when it drafted this.
  int32_t based_on = 0;
  std::vector<int32_t> tokens;
  // The drafter's estimate that all tokens are accepted; 0 if it makes none.
  float confidence = 0;
  // Ratio rule: what each of tokens was drawn from; else empty.
  std::vector<DraftDistribution> q = {};
  std::optional<ProposalTrace> trace = std::nullopt;
};

// Draft tokens that were not verified, by reason, since a sequence was opened
// on its verifier. Everything a verifier was sent is verified, counted here, or
// still pending.
struct DecodeCounters {
  // Equal to committed tokens on arrival, or to a bonus token.
  int64_t overlapped = 0;
  // Dropped by source, fence, gap or difference, or replaced.
  int64_t stale = 0;
  // Cut by a limit and never verified.
  int64_t trimmed = 0;

  friend bool operator==(const DecodeCounters&,
                         const DecodeCounters&) = default;
};

// What became of a draft token; see DraftOutcome in
// proto/specwire/v1/types.proto.
enum class DraftOutcome {
  kAccepted,
  kRejected,
  kDiscarded,
  kOverlapped,
  kStale,
  kTrimmed,
  kUnused,
};

// What the target thinks of a token: its probability after the whole pipeline,
// and its log-probability under the raw logits.
struct TargetProbability {
  double probability = 0;
  double logprob = 0;
};

// What became of a draft token, as its verifier tells.
struct DraftFate {
  // Which of all that its stream brought, from 0; none: it was looked up by the
  // verifier, and is `token_id`.
  std::optional<int64_t> number;
  int32_t token_id = 0;
  DraftOutcome outcome = DraftOutcome::kStale;
  // Of one that was looked up: the estimate that it is accepted, given that all
  // before it are; under the ratio rule what it was drawn with.
  std::optional<double> draft_probability;
  // Accepted and rejected ones.
  std::optional<TargetProbability> target;
};

// Draft tokens whose fates one response may tell.
inline constexpr size_t kMaxDraftFates = 16384;

// What a traced pass tells beside its tokens.
struct CommitTrace {
  // The verified ones, in the order of the pass's rows, then those settled
  // otherwise since the commit before.
  std::vector<DraftFate> drafts;
  // For each committed token.
  std::vector<TargetProbability> choices;
  // Draft tokens that the stream had brought when the pass began, and how long
  // it had had the last of them.
  int64_t num_received = 0;
  absl::Duration held;
};

// What one verify pass committed.
struct Commit {
  int32_t position = 0;
  std::vector<int32_t> tokens;
  // For each of `tokens`, if asked for; else empty.
  std::vector<PositionLogprobs> logprobs = {};
  // Draft tokens that the pass verified.
  int32_t num_proposed = 0;
  // How many of `tokens`, from the first on, were accepted draft tokens.
  int32_t num_accepted = 0;
  // Counts so far.
  DecodeCounters counters;
  // kStop or kLength in the last commit of a sequence, else kNone.
  FinishReason finish = FinishReason::kNone;
  // The token that stopped it, if finish is kStop.
  std::optional<int32_t> stop_token_id;
  // The draft tokens were looked up by the verifier; counters leave them out.
  bool local = false;
  // The next step has a local draft that is enough, and waits for no proposal.
  bool local_next = false;
  // Of a traced sequence.
  std::optional<CommitTrace> trace = std::nullopt;
};

}  // namespace specwire
