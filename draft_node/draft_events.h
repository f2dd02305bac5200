// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "common/drafting/drafter.h"
#include "common/drafting/messages.h"

namespace specwire::draft {

// Where a sequence's proposals go.
// Thread safety: any thread; never blocks.
class DraftSink {
 public:
  virtual ~DraftSink() = default;
  // False if the peer has gone or reads too slowly: the sequence should end.
  virtual bool Send(const Proposal& proposal) = 0;
  // Ends the stream; nothing may be sent after it.
  virtual void Finish(absl::Status status) = 0;
};

// Opens a sequence; the first event of a stream, and only the first.
struct OpenDraft {
  std::vector<int32_t> tokens;
  int prompt_length = 0;
  int run_length = 0;
  int window = 0;
  float min_survival = 0;
  DraftSequenceParams params;
  // Higher runs first.
  int32_t priority = 0;
  // Its proposals tell how they came about.
  bool trace = false;
  // Shared with the stream's reactor.
  std::shared_ptr<DraftSink> sink;
};

// The peer will send nothing more.
struct PeerDone {};

// Tokens that the target committed.
struct CommittedTokens {
  int32_t position = 0;
  std::vector<int32_t> tokens;
};

// Proposals from `position` on may be lost.
struct Rewind {
  int32_t position = 0;
};

// New settings; absent fields stay.
struct DraftTune {
  std::optional<int> run_length = std::nullopt;
  std::optional<int> window = std::nullopt;
  std::optional<float> min_survival = std::nullopt;
};

// What a stream may tell its sequence.
using DraftEvent =
    std::variant<PeerDone, OpenDraft, CommittedTokens, Rewind, DraftTune>;

}  // namespace specwire::draft
