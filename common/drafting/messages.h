// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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
};

}  // namespace specwire
