// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/drafting/messages.h"

namespace specwire::coordinator {

// Most draft tokens that are told of one pass.
inline constexpr size_t kMaxTracedDrafts = 1024;

// A draft token and what became of it.
struct TracedDraft {
  int32_t position = 0;
  int32_t token_id = 0;
  DraftOutcome outcome = DraftOutcome::kUnused;
  // See DraftTokenTrace in proto/specwire/v1/generation.proto.
  std::optional<double> draft_probability = std::nullopt;
  std::optional<TargetProbability> target = std::nullopt;
};

// Draft tokens of one drafter.
struct TracedRun {
  std::string drafter;
  std::string node;
  std::vector<TracedDraft> tokens;
};

// A token that the target chose.
struct TracedChoice {
  int32_t token_id = 0;
  bool accepted = false;
  std::optional<TargetProbability> target = std::nullopt;
};

// When things happened in a pass, the request's arrival at 0.
struct TracedTimes {
  absl::Duration start;
  absl::Duration wait;
  absl::Duration drafting;
  absl::Duration network;
  absl::Duration verify;
  std::optional<absl::Duration> proposal = std::nullopt;
  absl::Duration end;
};

// What a pass is told of; see PassTrace in proto/specwire/v1/generation.proto.
struct TracedPass {
  int32_t position = 0;
  std::vector<TracedRun> drafts;
  std::vector<TracedChoice> choices;
  // Not of what is left at the end.
  std::optional<TracedTimes> times = std::nullopt;
  std::string verifier;
  int64_t num_left_out = 0;
};

// When a pass ran, by its verifier's clock.
struct PassTimes {
  // From the end of the pass before to the start of this one.
  absl::Duration wait;
  absl::Duration verify;
};

// Looks on at one sequence: every draft token from its arrival at the
// coordinator until it is settled here, by the verifier, or never. The request
// machine tells it what it decides, its choice who the nodes are and when they
// are told something. It changes nothing; it believes a verifier no fate of a
// token that was not sent, or was settled.
//
// Thread safety: one thread at a time.
// Lifetime: the clock outlives it.
class RequestTrace {
 public:
  // `since_arrival`: how long ago the request came.
  RequestTrace(const Clock* clock, absl::Duration since_arrival);

  // Draft stream `source` is one of this node's.
  void OnDrafterOpened(int32_t source, std::string node, std::string drafter);
  // It is being told of the log up to `length`.
  void OnDrafterTold(int32_t source, int length);
  // Whatever the verifier before had is never settled.
  void OnVerifierOpened();
  void SetVerifier(std::string name) { verifier_ = std::move(name); }

  // A proposal came. It was forwarded, or dropped: the first `overlapped` of
  // its tokens for that, the others as stale.
  void OnForwarded(const Proposal& proposal);
  void OnDropped(const Proposal& proposal, int64_t overlapped);

  // What of a commit counts.
  struct Share {
    // Its first token that is new, and how many are.
    size_t first = 0;
    size_t size = 0;
    // Of the new ones, from the first on.
    int num_accepted = 0;
  };
  // A pass of which at least one token is new. Returns what there is to tell.
  TracedPass OnPass(const Commit& commit,
                    const PassTimes& times,
                    const Share& share);
  // A commit that brings nothing new: its pass does not count.
  void OnEmptyCommit(const Commit& commit, const PassTimes& times);
  // The request has ended with a log of `length` tokens: what is left.
  TracedPass OnFinished(int length);

 private:
  // A draft token under way.
  struct Sent {
    int32_t source = 0;
    TracedDraft draft;
  };
  // A proposal that was forwarded.
  struct Forwarded {
    absl::Time came;
    absl::Time sent;
    absl::Duration drafting;
    // On the way from and to the drafter.
    absl::Duration network;
  };
  struct Drafter {
    std::string node;
    std::string name;
    // When it was told of the log, by its length.
    std::map<int, absl::Time> told;
  };

  std::vector<Sent> Parse(const Proposal& proposal);
  Forwarded Timed(const Proposal& proposal) const;
  void LoseSent();
  // Takes a token that was sent; none if there is no such.
  std::optional<Sent> TakeSent(int64_t number);
  // Takes those of a commit's fates from `first` on, which were not verified.
  void TakeDropped(const CommitTrace& trace, size_t first);
  // Tells of a token, unless there are too many.
  void Add(const Sent& sent, TracedPass* pass) const;
  void AddLocal(const TracedDraft& draft, TracedPass* pass) const;
  void AddTo(absl::string_view drafter,
             absl::string_view node,
             const TracedDraft& draft,
             TracedPass* pass) const;
  void AddVerified(const Commit& commit, const Share& share, TracedPass* pass);
  TracedTimes TimesOf(const Commit& commit, const PassTimes& times);
  // Where a pass began on the verifier's clock, which starts with the first.
  absl::Duration Tick(const PassTimes& times);
  // Remembers a settled token for the next pass.
  void Settle(Sent sent, DraftOutcome outcome);

  const Clock* const clock_;
  const absl::Time arrival_;
  std::string verifier_;
  std::map<int32_t, Drafter> drafters_;
  // By number, what the present verifier has.
  std::map<int64_t, Sent> sent_;
  int64_t num_sent_ = 0;
  // By the number behind its last token.
  std::map<int64_t, Forwarded> forwarded_;
  // Settled since the last pass, but not verified; never settled.
  std::vector<Sent> settled_;
  std::vector<Sent> unused_;
  int64_t num_left_out_ = 0;
  // The verifier's clock at the end of its latest pass; none before the first.
  std::optional<absl::Duration> verifier_clock_;
  // When that clock started, on the request's: the earliest that any verdict
  // allows, as some are late and come together.
  std::optional<absl::Duration> clock_start_;
  // Of the latest pass, on the request's clock.
  absl::Duration pass_end_;
};

}  // namespace specwire::coordinator
