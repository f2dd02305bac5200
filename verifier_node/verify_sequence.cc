// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/verify_sequence.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace specwire::verifier {

absl::StatusOr<VerifySequence> VerifySequence::Open(
    VerifyParams params, const VerifyLimits& limits) {
  SPECWIRE_RETURN_IF_ERROR(CheckParams(params, limits));
  return VerifySequence(std::move(params), limits);
}

VerifySequence::VerifySequence(VerifyParams params, const VerifyLimits& limits)
    : log_(std::move(params.tokens)),
      rule_(params.rule),
      prompt_length_(params.prompt_length),
      hard_limit_(static_cast<int>(std::min<int64_t>(
          static_cast<int64_t>(params.prompt_length) + params.max_tokens,
          limits.max_model_len))),
      vocab_size_(limits.vocab_size),
      stop_token_ids_(params.stop_token_ids.begin(),
                      params.stop_token_ids.end()),
      source_(params.source),
      // What was drafted before this sequence opened is not for it.
      fence_(static_cast<int>(log_.size())),
      decode_until_(params.decode_until),
      patience_(params.patience),
      max_draft_rows_(params.max_draft_rows),
      local_run_length_(params.local_run_length),
      local_enough_(params.local_enough) {
  if (params.trace) ledger_.emplace();
}

absl::Status VerifySequence::OnProposal(const Proposal& proposal) {
  SPECWIRE_RETURN_IF_ERROR(CheckProposal(proposal));
  const int64_t size = static_cast<int64_t>(proposal.tokens.size());
  const int64_t number =
      ledger_.has_value() ? ledger_->Receive(proposal.tokens.size()) : 0;
  if (done_) {
    return absl::OkStatus();
  }
  if (rule_ == AcceptanceRule::kRatio &&
      patience_ != absl::InfiniteDuration()) {
    CountDropped(number, size, DraftOutcome::kStale);
    return absl::OkStatus();
  }
  if (proposal.source < source_) {
    CountDropped(number, size, DraftOutcome::kStale);
    return absl::OkStatus();
  }
  if (proposal.source > source_) {
    // Another drafter: the mistakes of the one before are not its own.
    source_ = proposal.source;
    DropPending();
    fence_ = 0;
    plain_now_ = false;
  }
  if (proposal.based_on < fence_) {
    CountDropped(number, size, DraftOutcome::kStale);
    return absl::OkStatus();
  }
  if (proposal.tokens.empty()) {
    if (proposal.position == length() + static_cast<int>(pending_.size())) {
      plain_now_ = true;
    }
    return absl::OkStatus();
  }
  TakeTokens(proposal.position, proposal.tokens, proposal.q, number);
  return absl::OkStatus();
}

absl::Status VerifySequence::CheckProposal(const Proposal& proposal) const {
  if (proposal.tokens.size() > kMaxProposalTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("proposal.tokens must have at most ",
                     kMaxProposalTokens,
                     " entries, got ",
                     proposal.tokens.size()));
  }
  SPECWIRE_RETURN_IF_ERROR(
      CheckIds("proposal.tokens", proposal.tokens, vocab_size_));
  SPECWIRE_RETURN_IF_ERROR(
      CheckAtLeast("proposal.position", proposal.position, 0));
  SPECWIRE_RETURN_IF_ERROR(CheckAtLeast("proposal.source", proposal.source, 0));
  if (proposal.based_on < 0 || proposal.based_on > length()) {
    return absl::InvalidArgumentError(
        absl::StrCat("proposal.based_on must be in [0, ",
                     length(),
                     "], the committed length, got ",
                     proposal.based_on));
  }
  return CheckDistributions(proposal);
}

absl::Status VerifySequence::CheckDistributions(
    const Proposal& proposal) const {
  const size_t needed =
      rule_ == AcceptanceRule::kRatio ? proposal.tokens.size() : 0;
  if (proposal.q.size() != needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("proposal.q must have ",
                     needed,
                     needed > 0 ? " entries under the ratio rule, one for each "
                                  "token, got "
                                : " entries here, got ",
                     proposal.q.size()));
  }
  for (size_t i = 0; i < needed; ++i) {
    if (const absl::Status status =
            ValidateDraft(proposal.q[i], proposal.tokens[i], vocab_size_);
        !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("proposal.q[", i, "]: ", status.message()));
    }
  }
  return absl::OkStatus();
}

void VerifySequence::TakeTokens(int position,
                                absl::Span<const int32_t> tokens,
                                absl::Span<const DraftDistribution> q,
                                int64_t number) {
  // Tokens that are already committed: compare.
  const int64_t overlap = std::clamp<int64_t>(
      int64_t{length()} - position, 0, static_cast<int64_t>(tokens.size()));
  for (int64_t i = 0; i < overlap; ++i) {
    if (log_[static_cast<size_t>(position + i)] !=
        tokens[static_cast<size_t>(i)]) {
      survival_.OnCompared(static_cast<int>(i), false);
      CountDropped(number, i, DraftOutcome::kOverlapped);
      CountDropped(number + i,
                   static_cast<int64_t>(tokens.size()) - i,
                   DraftOutcome::kStale);
      DropPending();
      // One past the first difference, no further: the drafter learns of it by
      // the commit that holds that position, and its answer must get through.
      fence_ = std::max(fence_, static_cast<int>(position + i + 1));
      return;
    }
    survival_.OnCompared(static_cast<int>(i), true);
  }
  CountDropped(number, overlap, DraftOutcome::kOverlapped);
  tokens.remove_prefix(static_cast<size_t>(overlap));
  number += overlap;
  const int64_t start = position + overlap;
  // The last position is always the target's own, so no draft token for it or
  // beyond can ever be verified.
  const int64_t keep = std::clamp<int64_t>(
      hard_limit_ - 1 - start, 0, static_cast<int64_t>(tokens.size()));
  CountDropped(number + keep,
               static_cast<int64_t>(tokens.size()) - keep,
               DraftOutcome::kTrimmed);
  tokens = tokens.first(static_cast<size_t>(keep));
  if (tokens.empty()) {
    return;
  }
  const size_t place = static_cast<size_t>(start - length());
  if (place > pending_.size()) {
    CountDropped(number, keep, DraftOutcome::kStale);
    return;
  }
  // The drafter went back: its new word replaces the old.
  CountReplaced(place);
  pending_.resize(place);
  pending_.insert(pending_.end(), tokens.begin(), tokens.end());
  if (ledger_.has_value()) ledger_->Append(number, tokens.size());
  if (rule_ == AcceptanceRule::kRatio) {
    q = q.subspan(static_cast<size_t>(overlap), tokens.size());
    pending_q_.resize(place);
    pending_q_.insert(pending_q_.end(), q.begin(), q.end());
  }
  plain_now_ = false;
}

void VerifySequence::CountDropped(int64_t number,
                                  int64_t count,
                                  DraftOutcome outcome) {
  switch (outcome) {
    case DraftOutcome::kOverlapped:
      counters_.overlapped += count;
      break;
    case DraftOutcome::kTrimmed:
      counters_.trimmed += count;
      break;
    default:
      counters_.stale += count;
  }
  if (ledger_.has_value()) ledger_->Settle(number, count, outcome);
}

void VerifySequence::CountReplaced(size_t place) {
  counters_.stale += static_cast<int64_t>(pending_.size() - place);
  if (ledger_.has_value()) ledger_->SettleFrom(place, DraftOutcome::kStale);
}

absl::Status VerifySequence::OnTune(const VerifyTune& tune) {
  SPECWIRE_RETURN_IF_ERROR(
      CheckTune(tune, rule_, local_run_length_, decode_until_));
  patience_ = tune.patience.value_or(patience_);
  max_draft_rows_ = tune.max_draft_rows.value_or(max_draft_rows_);
  decode_until_ = tune.decode_until.value_or(decode_until_);
  local_enough_ = tune.local_enough.value_or(local_enough_);
  return absl::OkStatus();
}

void VerifySequence::SetLocalDraft(DraftRun draft) {
  local_ = std::move(draft);
  const size_t size =
      std::min(local_.tokens.size(), static_cast<size_t>(max_local_tokens()));
  local_.tokens.resize(size);
  local_.survival.resize(size);
  if (rule_ != AcceptanceRule::kRatio) return;
  if (local_.q.empty()) {
    for (const int32_t token : local_.tokens) {
      local_.q.push_back({.token_ids = {token}, .probabilities = {1.0f}});
    }
  }
  local_.q.resize(size);
}

int VerifySequence::max_local_tokens() const {
  if (done_) return 0;
  return std::min(local_run_length_, hard_limit_ - length() - 1);
}

int VerifySequence::num_local_tokens_wanted() const {
  if (!pending_.empty() && !LocalIsEnough()) return 0;
  return std::min(RowLimit(), max_local_tokens());
}

int VerifySequence::RowLimit() const {
  return std::clamp(
      std::min(hard_limit_, decode_until_) - length() - 1, 0, max_draft_rows_);
}

VerifySequence::Next VerifySequence::NextAt(absl::Time now) const {
  if (done_) {
    return {Next::Kind::kDone, absl::InfiniteFuture()};
  }
  if (length() >= decode_until_) {
    return {Next::Kind::kBlocked, absl::InfiniteFuture()};
  }
  if (!pending_.empty() || plain_now_ || RowLimit() == 0 || LocalIsEnough()) {
    return {Next::Kind::kRun, now};
  }
  if (patience_ == absl::InfiniteDuration()) {
    return {Next::Kind::kWait, absl::InfiniteFuture()};
  }
  const absl::Time at = last_step_end_ + patience_;
  return {now >= at ? Next::Kind::kRun : Next::Kind::kWait, at};
}

int VerifySequence::NumLocalRows() const {
  return std::min(RowLimit(), static_cast<int>(local_.tokens.size()));
}

bool VerifySequence::LocalIsEnough() const {
  if (local_expected_ > 0 && local_expected_ >= local_enough_ &&
      RowLimit() > 0) {
    return true;
  }
  const int rows = NumLocalRows();
  if (rows == 0) return false;
  const auto end = local_.survival.begin() + rows;
  return std::accumulate(local_.survival.begin(), end, 0.0f) >= local_enough_;
}

bool VerifySequence::TakesLocal() const {
  return NumLocalRows() > 0 && (pending_.empty() || LocalIsEnough());
}

int VerifySequence::num_step_rows() const {
  if (TakesLocal()) return NumLocalRows();
  return std::min(RowLimit(), static_cast<int>(pending_.size()));
}

absl::Span<const float> VerifySequence::step_survival() const {
  if (!TakesLocal()) return {};
  return absl::MakeConstSpan(local_.survival)
      .first(static_cast<size_t>(NumLocalRows()));
}

bool VerifySequence::lock_step() const {
  return rule_ == AcceptanceRule::kRatio ||
         patience_ == absl::InfiniteDuration();
}

absl::Span<const int32_t> VerifySequence::BeginStep(int max_rows) {
  step_rows_ = std::clamp(max_rows, 0, num_step_rows());
  step_local_ = step_rows_ > 0 && TakesLocal();
  return step_draft();
}

absl::Span<const int32_t> VerifySequence::step_draft() const {
  return absl::MakeConstSpan(step_local_ ? local_.tokens : pending_)
      .first(static_cast<size_t>(step_rows_));
}

absl::Span<const DraftDistribution> VerifySequence::step_q() const {
  if (rule_ != AcceptanceRule::kRatio) return {};
  return absl::MakeConstSpan(step_local_ ? local_.q : pending_q_)
      .first(static_cast<size_t>(step_rows_));
}

Commit VerifySequence::FinishStep(absl::Span<const int32_t> target,
                                  absl::Time now) {
  const absl::Span<const int32_t> draft = step_draft();
  Commit commit;
  commit.position = length();
  commit.num_proposed = step_rows_;
  commit.local = step_local_;
  bool agrees = true;
  for (size_t i = 0; i <= draft.size() && i < target.size() && agrees &&
                     commit.finish == FinishReason::kNone;
       ++i) {
    const int32_t token = target[i];
    log_.push_back(token);
    commit.tokens.push_back(token);
    agrees = i < draft.size() && token == draft[i];
    commit.num_accepted += agrees ? 1 : 0;
    // In the order of the tokens, and a stop token before the limit.
    if (stop_token_ids_.contains(token)) {
      commit.finish = FinishReason::kStop;
      commit.stop_token_id = token;
    } else if (length() >= hard_limit_) {
      commit.finish = FinishReason::kLength;
    }
  }
  if (ledger_.has_value()) NoteVerified(commit);
  if (!commit.local) {
    survival_.OnVerified(commit.num_proposed, commit.num_accepted);
    ErasePending(draft.size());
  }
  if (commit.finish != FinishReason::kNone) {
    done_ = true;
  } else {
    SettlePending(commit);
  }
  step_rows_ = 0;
  step_local_ = false;
  local_ = {};
  local_expected_ = 0;
  plain_now_ = false;
  last_step_end_ = now;
  commit.counters = counters_;
  if (ledger_.has_value()) {
    commit.trace.emplace().drafts = ledger_->Take();
    commit.trace->num_received = ledger_->num_received();
  }
  return commit;
}

void VerifySequence::NoteVerified(const Commit& commit) {
  std::vector<DraftOutcome> outcomes(static_cast<size_t>(step_rows_),
                                     DraftOutcome::kDiscarded);
  for (size_t i = 0; i < outcomes.size() && i < commit.tokens.size(); ++i) {
    outcomes[i] = static_cast<int>(i) < commit.num_accepted
                      ? DraftOutcome::kAccepted
                      : DraftOutcome::kRejected;
  }
  if (!commit.local) return ledger_->VerifyPending(outcomes);
  std::vector<DraftFate> fates(outcomes.size());
  for (size_t i = 0; i < fates.size(); ++i) {
    fates[i].token_id = local_.tokens[i];
    fates[i].outcome = outcomes[i];
    fates[i].draft_probability = LocalProbability(i);
  }
  ledger_->VerifyLocal(std::move(fates));
}

double VerifySequence::LocalProbability(size_t index) const {
  if (rule_ == AcceptanceRule::kRatio) {
    return DraftProbability(local_.q[index], local_.tokens[index]);
  }
  const double before =
      index == 0 ? 1 : static_cast<double>(local_.survival[index - 1]);
  const auto survival = static_cast<double>(local_.survival[index]);
  return before > 0 ? std::min(survival / before, 1.0) : 0;
}

void VerifySequence::SettlePending(const Commit& commit) {
  if (commit.local) return ComparePending(commit, 0);
  if (commit.num_accepted == commit.num_proposed) {
    return ComparePending(commit, commit.num_proposed);
  }
  // What stands behind a rejected token was compared with nothing.
  DropPending();
  fence_ = length();
}

void VerifySequence::ComparePending(const Commit& commit, int first) {
  for (auto i = static_cast<size_t>(first);
       i < commit.tokens.size() && !pending_.empty();
       ++i) {
    const bool equal = pending_.front() == commit.tokens[i];
    survival_.OnCompared(static_cast<int>(i), equal);
    if (!equal) {
      DropPending();
      fence_ = length();
      return;
    }
    // The target's own token is what was proposed: the rest still holds.
    ++counters_.overlapped;
    if (ledger_.has_value()) {
      ledger_->SettleFront(1, DraftOutcome::kOverlapped);
    }
    ErasePending(1);
  }
}

void VerifySequence::DropPending() {
  CountReplaced(0);
  pending_.clear();
  pending_q_.clear();
}

void VerifySequence::ErasePending(size_t count) {
  const auto end = static_cast<std::ptrdiff_t>(count);
  pending_.erase(pending_.begin(), pending_.begin() + end);
  if (rule_ == AcceptanceRule::kRatio) {
    pending_q_.erase(pending_q_.begin(), pending_q_.begin() + end);
  }
}

}  // namespace specwire::verifier
