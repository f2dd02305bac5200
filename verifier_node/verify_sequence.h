// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/drafting/messages.h"
#include "verifier_node/draft_ledger.h"
#include "verifier_node/survival.h"
#include "verifier_node/verify_params.h"

namespace specwire::verifier {

// The verifier's half of the token protocol for one sequence: the committed
// log, the proposed tokens pending behind it, the current source, the fence,
// patience and credit. Pure code: no clock, no sockets, no model; time is
// handed in. See docs/design.md.
//
// A step: when NextAt() says kRun, take BeginStep()'s draft tokens, compute the
// target's token for each of them and one beyond, and hand these to
// FinishStep(). Between the two calls there may be no other.
//
// Beside proposals there may be a *local draft* for the next step, which the
// verifier found by itself. A step verifies it if nothing is pending, or if it
// is enough; a step that could verify one that is enough waits for nothing.
// What is pending then is compared with all that the step commits. Counters and
// survival are about proposals alone.
//
// Thread safety: one thread at a time, the engine's.
class VerifySequence {
 public:
  // INVALID_ARGUMENT naming the field and its limit.
  static absl::StatusOr<VerifySequence> Open(VerifyParams params,
                                             const VerifyLimits& limits);

  // Takes a proposal. Stale and gapped ones are dropped and counted, which is
  // no error; INVALID_ARGUMENT if it is malformed (more than kMaxProposalTokens
  // tokens, an id outside the vocabulary, a negative position or source,
  // based_on outside [0, committed length], under the ratio rule a token
  // without a valid distribution, under the coupled rule one with any). Once
  // done, it is ignored. Under the ratio rule a proposal that comes while
  // patience is 0 is stale: positions would have it or not by how fast it came.
  absl::Status OnProposal(const Proposal& proposal);
  // INVALID_ARGUMENT as CheckTune; then nothing has changed.
  absl::Status OnTune(const VerifyTune& tune);

  // Sets the local draft for the next step, of at most local_run_length tokens,
  // in place of any other; what limits and credit do not allow is left out when
  // it is verified. Under the ratio rule whether a place has a token must not
  // depend on the token drawn there. REQUIRES: ids in the vocabulary; survival
  // for each token; under the ratio rule q valid for each token, or empty: each
  // was certain.
  void SetLocalDraft(DraftRun draft);
  // A local draft is being made that may be expected to bring so many tokens:
  // until the next step it counts for as much, whatever SetLocalDraft is given
  // and when.
  void ExpectLocalDraft(float num_tokens) { local_expected_ = num_tokens; }
  // Most tokens of a local draft that could ever be verified in the next step.
  int max_local_tokens() const;
  // Of them, those that it could verify now; 0 if it verifies a proposal.
  int num_local_tokens_wanted() const;

  // The prompt is in the cache: patience for the first step counts from `now`.
  void OnPrefilled(absl::Time now) { last_step_end_ = now; }

  // What to do at a given time.
  struct Next {
    enum class Kind {
      kRun,      // Do a step now.
      kWait,     // Do a step at `at`, or earlier if an event comes.
      kBlocked,  // No credit: wait for OnTune.
      kDone,     // The sequence has ended.
    };
    Kind kind = Kind::kDone;
    absl::Time at = absl::InfiniteFuture();
  };
  Next NextAt(absl::Time now) const;

  // Draft tokens that a step could verify now.
  int num_step_rows() const;
  // If they are those of the local draft, the chance for each that it and all
  // before it are accepted; else empty.
  absl::Span<const float> step_survival() const;
  // The local draft goes before proposals: what limits and credit allow of it
  // is expected to bring local_enough accepted tokens, or one that is being
  // made is. Nothing is never enough.
  bool LocalIsEnough() const;
  // A step verifies all the draft tokens that it could, whatever the load.
  // Under the coupled rule it waits for proposals without limit, unless the
  // local draft is enough.
  bool lock_step() const;

  // The draft tokens to verify in this pass, at most `max_rows` and what limits
  // and credit allow; the rest stays pending. Valid until FinishStep. REQUIRES:
  // NextAt() is kRun.
  absl::Span<const int32_t> BeginStep(int max_rows);
  // Ratio rule: what each of BeginStep's draft tokens was drawn from; else
  // empty. Valid until FinishStep.
  absl::Span<const DraftDistribution> step_q() const;
  // `target` holds the target's token for each draft token of BeginStep and one
  // beyond; entry i is meaningful only if all draft tokens before i were right.
  // Commits the accepted tokens and the target's own, judges stops token by
  // token, and drops what no longer holds. REQUIRES: target.size() ==
  // BeginStep's size + 1.
  // Of a traced sequence it tells the fates of draft tokens as well.
  Commit FinishStep(absl::Span<const int32_t> target, absl::Time now);

  // Prompt and all committed tokens.
  absl::Span<const int32_t> log() const { return log_; }
  absl::Span<const int32_t> pending() const { return pending_; }
  int prompt_length() const { return prompt_length_; }
  // Its log never grows longer: max_tokens or the context's end.
  int max_length() const { return hard_limit_; }
  bool done() const { return done_; }
  AcceptanceRule rule() const { return rule_; }
  const DecodeCounters& counters() const { return counters_; }
  // How good the proposals have been.
  const Survival& survival() const { return survival_; }

 private:
  VerifySequence(VerifyParams params, const VerifyLimits& limits);

  int length() const { return static_cast<int>(log_.size()); }
  // Draft tokens that a pass may verify now, pending or not.
  int RowLimit() const;
  // Tokens of the local draft that a pass may verify now.
  int NumLocalRows() const;
  // A step now would verify the local draft.
  bool TakesLocal() const;
  // The draft tokens of the step under way.
  absl::Span<const int32_t> step_draft() const;
  absl::Status CheckProposal(const Proposal& proposal) const;
  absl::Status CheckDistributions(const Proposal& proposal) const;
  // Takes a proposal's tokens that neither source nor fence rules out; `number`
  // is the first one's in the ledger.
  void TakeTokens(int position,
                  absl::Span<const int32_t> tokens,
                  absl::Span<const DraftDistribution> q,
                  int64_t number);
  // Counts draft tokens as stale, overlapped or trimmed: those of a proposal
  // from `number` on, or what is pending from the given place on.
  void CountDropped(int64_t number, int64_t count, DraftOutcome outcome);
  void CountReplaced(size_t place);
  // Tells the ledger what became of the step's draft tokens.
  void NoteVerified(const Commit& commit);
  // See DraftFate::draft_probability, of the local draft's token there.
  double LocalProbability(size_t index) const;
  // Keeps of what is pending behind a pass what its commit leaves valid.
  void SettlePending(const Commit& commit);
  // Compares what is pending with the commit's tokens from the given one on.
  void ComparePending(const Commit& commit, int first);
  void DropPending();
  // Removes the first `count` of what is pending.
  void ErasePending(size_t count);

  std::vector<int32_t> log_;
  // Proposed tokens from position log_.size() on.
  std::vector<int32_t> pending_;
  // Ratio rule: what each of them was drawn from; else empty.
  std::vector<DraftDistribution> pending_q_;
  AcceptanceRule rule_;
  int prompt_length_;
  // First position that is never filled: max_tokens or the context's end.
  int hard_limit_;
  int vocab_size_;
  absl::flat_hash_set<int32_t> stop_token_ids_;
  int32_t source_;
  // Proposals based on fewer committed tokens than this are stale.
  int fence_;
  int decode_until_;
  absl::Duration patience_;
  int max_draft_rows_;
  int local_run_length_;
  float local_enough_;
  // Behind log_; none: no tokens. Under the ratio rule q is set.
  DraftRun local_;
  // Accepted tokens to expect of one that is being made.
  float local_expected_ = 0;
  // The current drafter has nothing to propose here.
  bool plain_now_ = false;
  bool done_ = false;
  // Draft tokens of the step under way, and whether they are local_'s.
  int step_rows_ = 0;
  bool step_local_ = false;
  absl::Time last_step_end_ = absl::InfinitePast();
  DecodeCounters counters_;
  Survival survival_;
  // If it is traced.
  std::optional<DraftLedger> ledger_;
};

}  // namespace specwire::verifier
