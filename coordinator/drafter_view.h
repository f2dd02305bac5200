// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/messages.h"

namespace specwire::coordinator {

// What a request knows of its current draft stream: the path that the drafter
// has taken beyond the log, as far as it has told, how much of it the present
// verifier was given, and whether the drafter owes an answer.
//
// It judges proposals by the verifier's own rules, and what it drops is not
// passed on. So whatever it takes for outstanding, the verifier has, or is
// about to say why not with a commit that differs: a sequence in lock-step
// never waits for a drafter that has spoken as far as the view knows. It
// remembers the path across a rewind, which a reopened verifier cannot: a
// proposal from the middle of a path that has meanwhile turned out wrong must
// not pass for a good one.
//
// A drafter owes an answer to its open, to every rewind, and to every commit
// that leaves nothing outstanding. An answer is a proposal that leaves
// something outstanding, or an empty one at the end of what is.
//
// Thread safety: one thread at a time.
class DrafterView {
 public:
  // Of the path's tokens that a commit could be compared with, the first
  // `matched` were right.
  struct Comparison {
    int matched = 0;
    int compared = 0;
  };

  // What became of a proposal.
  struct Verdict {
    // Pass it on to the verifier.
    bool forward = false;
    // If not: its tokens, all of them, by reason.
    int64_t overlapped = 0;
    int64_t stale = 0;
    // It is the drafter's first word since it had no path left: the start of
    // one, or that it has none.
    bool begins = false;
    // Tokens of such a start that had been committed when it came.
    Comparison late = {};
  };

  DrafterView(int vocab_size,
              int run_length,
              int window,
              AcceptanceRule rule = AcceptanceRule::kCoupled);

  // A stream was opened with `length` committed tokens.
  void OnOpened(int length);
  // It was told to propose again from `length`, the log's end.
  void OnRewind(int length);
  // The last `size` tokens of `log` were committed, and it was sent the commit.
  // Returns how its path fared, as far as it went.
  Comparison OnCommit(absl::Span<const int32_t> log, size_t size);
  // The same for a commit that is kept from it: it owes nothing, and may owe
  // nothing for what it was told before.
  Comparison OnWithheld(absl::Span<const int32_t> log, size_t size);
  // It was sent all that was kept from it, up to `length`, the log's end.
  void OnResumed(int length);
  // It was told new settings; what it sends by older ones is as good.
  void OnTuned(int run_length, int window);
  // A proposal of this stream came; `log` is prompt and completion so far.
  // INVALID_ARGUMENT naming the field if it is malformed or contradicts what
  // the drafter said or was told, RESOURCE_EXHAUSTED if there are too many: the
  // drafter cannot be trusted.
  absl::StatusOr<Verdict> OnProposal(const Proposal& proposal,
                                     absl::Span<const int32_t> log);

  // The drafter owes an answer.
  bool owes() const { return owes_; }
  // Number of its latest debt; it rises with every new one.
  int64_t owed() const { return owed_; }
  // Draft tokens beyond the log that the present verifier was given.
  int num_outstanding() const { return num_given_; }
  // The path goes beyond the log.
  bool has_path() const { return !path_.empty(); }

 private:
  Comparison Compare(absl::Span<const int32_t> log, size_t size);
  absl::Status Check(const Proposal& proposal, int length);
  // Of the ratio rule's distributions.
  absl::Status CheckDistributions(const Proposal& proposal) const;
  absl::StatusOr<Verdict> TakeTokens(const Proposal& proposal,
                                     absl::Span<const int32_t> log);
  void BeginDebt(int length);
  // Messages that one event may cause.
  int64_t MessagesPerEvent() const { return window_ / least_run_length_ + 2; }

  int vocab_size_;
  // Largest that it was told, and the least.
  int run_length_;
  int window_;
  int least_run_length_;
  AcceptanceRule rule_;
  // Proposed tokens from the end of the log on, and how many of them, from the
  // first on, the present verifier was given.
  std::vector<int32_t> path_;
  int num_given_ = 0;
  // Proposals based on fewer committed tokens than this are on a wrong path.
  int fence_ = 0;
  // Those based on fewer than this are not for the present verifier.
  int verifier_fence_ = 0;
  bool owes_ = false;
  int64_t owed_ = 0;
  // Committed length of the event that the latest debt is for.
  int owed_length_ = 0;
  // Messages that may still come before the next event.
  int64_t messages_left_ = 0;
};

}  // namespace specwire::coordinator
