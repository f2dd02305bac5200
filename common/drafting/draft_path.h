// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/drafting/messages.h"

namespace specwire {

// INTERNAL saying why, if a run is not what a drafter may answer to these
// limits: too long, or with survivals or distributions for other than all of
// its tokens.
absl::Status CheckRun(const DraftRun& run, const DraftLimits& limits);

// Cuts a run before its first token that survives less likely. What makes no
// estimates stays whole.
void CutRun(float min_survival, DraftRun* run);

// The drafter's half of the token protocol for one sequence: which tokens are
// committed, which path the drafter has taken beyond them, and what of it has
// been sent. Pure code: no clock, no sockets, no model. See docs/design.md.
//
// Use: after each event call NextWork() until it has nothing; when it says
// kDraft, ask the DraftSequence for tokens and hand them to OnDrafted().
//
// Thread safety: one thread at a time.
class DraftPath {
 public:
  // INVALID_ARGUMENT naming the field: tokens empty, prompt_length outside [1,
  // tokens], run_length outside [1, kMaxRunLength], window outside [run_length,
  // kMaxWindow], min_survival outside [0, 1); under the ratio rule also a
  // window beyond run_length, since it runs in lock-step, and a min_survival
  // other than 0, since no run may be cut by what its tokens are.
  static absl::StatusOr<DraftPath> Open(
      std::vector<int32_t> tokens,
      int prompt_length,
      int run_length,
      int window,
      AcceptanceRule rule = AcceptanceRule::kCoupled,
      float min_survival = 0);

  // Tokens that the target committed. INTERNAL if they leave a gap or
  // contradict an earlier commit; a repeated commit is ignored.
  absl::Status OnCommit(int position, absl::Span<const int32_t> tokens);
  // Proposals from `position` on may be lost: propose them again.
  // INVALID_ARGUMENT unless 0 <= position <= committed length.
  // Committed tokens are not proposed again.
  absl::Status OnRewind(int position);
  // New settings, with Open's limits.
  absl::Status OnTune(std::optional<int> run_length,
                      std::optional<int> window,
                      std::optional<float> min_survival = std::nullopt);

  // What to do now.
  struct Work {
    enum class Kind {
      kNone,   // Nothing until the next event.
      kSend,   // Send `proposal`.
      kDraft,  // Ask for tokens after path(), within `limits`.
    };
    Kind kind = Kind::kNone;
    Proposal proposal;
    DraftLimits limits;
  };
  // Takes the next piece of work. A kSend counts as sent.
  Work NextWork();
  // The answer to a kDraft, cut before the first token that survives less
  // likely than the limits say. Fewer tokens than asked for mean that there is
  // nothing more to propose until the next event, unless nothing was cut and it
  // says that there may be more. REQUIRES: run.tokens.size() <=
  // limits.max_tokens of the latest kDraft, run.q and run.survival are empty or
  // as long, and no event since.
  void OnDrafted(DraftRun run);

  // Committed tokens, then the drafter's own.
  absl::Span<const int32_t> path() const { return path_; }
  // For each of a proposal's tokens, which NextWork has just said to send, the
  // estimated chance that it is accepted if all before it are; empty if there
  // is none for one of them.
  std::vector<float> Chances(const Proposal& proposal) const;
  int committed_length() const { return committed_length_; }
  int prompt_length() const { return prompt_length_; }

 private:
  DraftPath(std::vector<int32_t> tokens,
            int prompt_length,
            int run_length,
            int window,
            AcceptanceRule rule,
            float min_survival);
  // The survival of `size` tokens of the path from `position` on, as a run; 0
  // if it is not known for all of them.
  float Survival(int position, int size) const;

  std::vector<int32_t> path_;
  // Ratio rule: what each token of the path beyond the commits was drawn from;
  // one that is proposed again goes with the same.
  std::vector<DraftDistribution> q_;
  // For each token of the path beyond the commits the estimated chance that it
  // is accepted if all before it are; kNoEstimate where there is none. So what
  // a commit leaves of a run survives it rightly.
  std::vector<float> chances_;
  AcceptanceRule rule_;
  int committed_length_;
  int prompt_length_;
  int run_length_;
  int window_;
  float min_survival_;
  // End of what has been proposed.
  int sent_;
  // The drafter said that it has nothing more, since the last event.
  bool exhausted_ = false;
  // An event has left nothing outstanding, and nothing was sent since: it must
  // be answered.
  bool answer_due_ = true;
};

}  // namespace specwire
