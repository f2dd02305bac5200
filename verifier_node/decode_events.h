// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/drafting/messages.h"
#include "verifier_node/verify_sequence.h"

namespace specwire::verifier {

// When a pass ran.
struct StepTimes {
  // From the end of the sequence's step before to the start of this one.
  absl::Duration wait;
  // The forward pass and the choice of tokens.
  absl::Duration verify;
};

// Where a sequence's results go.
// Thread safety: any thread; never blocks.
class DecodeSink {
 public:
  virtual ~DecodeSink() = default;
  // False if the peer has gone or reads too slowly: the sequence should end.
  virtual bool Send(const Commit& commit, const StepTimes& times) = 0;
  // Ends the stream; nothing may be sent after it.
  virtual void Finish(absl::Status status) = 0;
};

// Opens a sequence; the first event of a stream, and only the first.
struct OpenSequence {
  VerifyParams params;
  // How the target's tokens are drawn; the seed is set.
  SamplingParams sampling;
  // Index of this sample among the request's n.
  int32_t choice = 0;
  // Higher runs first.
  int32_t priority = 0;
  // Shared with the stream's reactor.
  std::shared_ptr<DecodeSink> sink;
};

// The peer will send nothing more.
struct PeerDone {};

// What a stream may tell its sequence.
using DecodeEvent = std::variant<PeerDone, OpenSequence, Proposal, VerifyTune>;

}  // namespace specwire::verifier
