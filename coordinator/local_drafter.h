// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/drafting/draft_path.h"
#include "common/drafting/drafter.h"
#include "common/drafting/messages.h"

namespace specwire::coordinator {

// The local drafter's name: in a request it asks for it, in replies and
// statistics it stands where a draft node's name would.
inline constexpr char kLocalDrafter[] = "local";
// The draft node's drafter of the same kind. A request that asks for it by this
// name is content with the local one where no draft node has it.
inline constexpr char kLocalDrafterKind[] = "suffix";

// Whether a request that asks for a drafter by the name given, or for any if it
// is empty, may be given the local one.
bool MayDraftLocally(absl::string_view drafter);

// What a local stream is opened with; see DraftOpen of
// proto/specwire/v1/draft.proto.
struct LocalDraftOpen {
  std::vector<int32_t> tokens;
  int prompt_length = 0;
  int run_length = 0;
  int window = 0;
  float min_survival = 0;
  DraftSequenceParams params;
};

class LocalDrafter;

// A draft stream that is served in the coordinator's own process, by the rules
// of one that a draft node serves: events go in, proposals come out, and every
// open, rewind and commit that leaves nothing outstanding is answered.
//
// Thread safety: one thread at a time.
// Lifetime: must not outlive its LocalDrafter.
class LocalDraftStream {
 public:
  ~LocalDraftStream();
  LocalDraftStream(const LocalDraftStream&) = delete;
  LocalDraftStream& operator=(const LocalDraftStream&) = delete;

  // What is wrong with an event is Next()'s to tell.
  void OnCommit(int32_t position, absl::Span<const int32_t> tokens);
  void OnRewind(int32_t position);
  void OnTune(std::optional<int> run_length,
              std::optional<int> window,
              std::optional<float> min_survival);

  // The next proposal, its `source` left out; nothing until the next event. An
  // error, as a draft node's stream would end with it, is final.
  absl::StatusOr<std::optional<Proposal>> Next();
  // The first Next() has a text to read that takes it longer than proposals
  // do: about a millisecond for 8,000 tokens.
  bool has_long_text() const;

 private:
  friend class LocalDrafter;
  LocalDraftStream(LocalDrafter* drafter,
                   DraftPath path,
                   std::unique_ptr<DraftSequence> sequence);
  absl::Status Draft(const DraftLimits& limits);
  // Takes room for the path's tokens.
  void CountTokens();

  LocalDrafter* const drafter_;
  DraftPath path_;
  std::unique_ptr<DraftSequence> sequence_;
  int64_t num_counted_ = 0;
  // The drafter has been asked for something.
  bool has_drafted_ = false;
  // Of the event that failed.
  absl::Status status_;
};

// The drafter that a coordinator keeps for itself, so that a lookup costs no
// hop and a request has drafts when no draft node is left. It has no model, so
// it serves any vocabulary. What it remembers beyond one request is the
// drafter's business, which separates tenants by their salt.
//
// Thread safety: any thread.
class LocalDrafter {
 public:
  // REQUIRES: whatever thread calls, the drafter and its sequences, each
  // sequence on one thread at a time, may be used; a proposal takes
  // microseconds; max_batch() is 1.
  LocalDrafter(std::unique_ptr<Drafter> drafter, int64_t max_tokens);
  // REQUIRES: its streams are gone.
  ~LocalDrafter();
  LocalDrafter(const LocalDrafter&) = delete;
  LocalDrafter& operator=(const LocalDrafter&) = delete;

  // The one that CoordinatorOptions::local_drafter names; null for "none".
  static absl::StatusOr<std::unique_ptr<LocalDrafter>> Create(
      absl::string_view name);

  // INVALID_ARGUMENT as DraftPath::Open; RESOURCE_EXHAUSTED while the streams
  // that are open hold as many tokens as it has room for.
  absl::StatusOr<std::unique_ptr<LocalDraftStream>> Open(LocalDraftOpen open);

  // In the streams that are open.
  int64_t num_tokens() const { return num_tokens_; }

 private:
  friend class LocalDraftStream;

  const std::unique_ptr<Drafter> drafter_;
  const int64_t max_tokens_;
  std::atomic<int64_t> num_tokens_ = 0;
};

}  // namespace specwire::coordinator
