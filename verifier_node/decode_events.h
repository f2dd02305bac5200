// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/drafting/messages.h"
#include "common/sampling/history.h"
#include "common/sampling/logprobs.h"
#include "verifier_node/inspection.h"
#include "verifier_node/verify_sequence.h"

namespace specwire::verifier {

// What is told of a step beside its tokens.
struct StepReport {
  // From the end of the sequence's step before to the start of this one; zero
  // for the first.
  // Of the first response: in the queue.
  absl::Duration wait;
  // The forward pass and the choice of tokens.
  absl::Duration verify;
  // First step only: prompt tokens found in the prefix cache.
  int cached_prompt_tokens = 0;
};

// Log-probabilities of tokens that were given, not chosen.
struct LogprobRun {
  // Position of the first entry, >= 1: nothing precedes position 0.
  int32_t position = 0;
  std::vector<PositionLogprobs> entries;
};

// Where a sequence's results go.
// Thread safety: any thread; never blocks.
class DecodeSink {
 public:
  virtual ~DecodeSink() = default;
  // False if the peer has gone or reads too slowly: the sequence should end.
  virtual bool Send(const Commit& commit, const StepReport& report) = 0;
  // The same for part of the prompt, before all commits.
  virtual bool SendPrompt(const LogprobRun& run) = 0;
  // Ends the stream; nothing may be sent after it.
  virtual void Finish(absl::Status status) = 0;
};

// Opens a sequence; the first event of a stream, and only the first.
struct OpenSequence {
  VerifyParams params;
  // How the target's tokens are drawn; the seed is set.
  SamplingParams sampling;
  // What the sampler must know of the sequence beside that.
  SequenceContext context;
  // Index of this sample among the request's n.
  int32_t choice = 0;
  // Log-probabilities of committed tokens, and of those of the prompt: how many
  // candidates for each, 0 to kMaxLogprobs.
  std::optional<int> logprobs = std::nullopt;
  std::optional<int> prompt_logprobs = std::nullopt;
  // Higher runs first.
  int32_t priority = 0;
  // Prefixes are shared, and time is divided, by it.
  std::string cache_salt = {};
  // Whose turn it is used up.
  std::string user = {};
  // When its caller gives up.
  absl::Time deadline = absl::InfiniteFuture();
  // A step that waits for a proposal without limit waits in vain if one takes
  // longer: it, or what told of it, was lost on the way.
  absl::Duration max_silence = absl::InfiniteDuration();
  // Shared with the stream's reactor.
  std::shared_ptr<DecodeSink> sink;
};

// Where the log-probabilities of a scored text go. As DecodeSink.
class ScoreSink {
 public:
  virtual ~ScoreSink() = default;
  virtual bool Send(const LogprobRun& run) = 0;
  virtual void Finish(absl::Status status) = 0;
};

// Scores given tokens; the only event of a stream.
struct OpenScore {
  std::vector<int32_t> tokens;
  // The first of them, which are not scored.
  int num_context = 0;
  // Candidates for each position, 0 to kMaxLogprobs.
  int top = 0;
  // See OpenSequence.
  std::string user;
  // When its caller gives up.
  absl::Time deadline = absl::InfiniteFuture();
  // Shared with the stream's reactor.
  std::shared_ptr<ScoreSink> sink;
};

// The peer will send nothing more.
struct PeerDone {};

// What a stream may tell its sequence.
using DecodeEvent = std::variant<PeerDone,
                                 OpenSequence,
                                 OpenScore,
                                 OpenInspection,
                                 Proposal,
                                 VerifyTune>;

}  // namespace specwire::verifier
