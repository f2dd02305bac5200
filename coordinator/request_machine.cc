// SPDX-License-Identifier: Apache-2.0
#include "coordinator/request_machine.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/draining.h"
#include "common/base/status_macros.h"

namespace specwire::coordinator {
namespace {

// Adds 1 at `index`, growing `counts` as needed.
void CountAt(std::vector<int64_t>* counts, int index) {
  if (counts->size() <= static_cast<size_t>(index)) {
    counts->resize(static_cast<size_t>(index) + 1);
  }
  ++(*counts)[static_cast<size_t>(index)];
}

// Whether another verifier may do better after a stream ended like this.
bool IsMovable(absl::StatusCode code) {
  switch (code) {
    // The stream ended in peace but without a finish.
    case absl::StatusCode::kOk:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return true;
    default:
      return false;
  }
}

// Those of `count` of the commit's tokens from `first` on, if it has them.
std::vector<PositionLogprobs> LogprobsOf(const Commit& commit,
                                         size_t first,
                                         size_t count) {
  if (commit.logprobs.size() != commit.tokens.size()) return {};
  const auto begin =
      commit.logprobs.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

// Plain steps from which their time is known well enough.
constexpr int64_t kEnoughPlainSteps = 8;

int64_t Sum(const DecodeCounters& counters) {
  return counters.overlapped + counters.stale + counters.trimmed;
}

int32_t ToInt32(int64_t value) {
  return static_cast<int32_t>(
      std::min<int64_t>(value, std::numeric_limits<int32_t>::max()));
}

FinishRequest StoppedByText() {
  FinishRequest finish;
  finish.reason = FinishReason::kStop;
  finish.stop_text = true;
  return finish;
}

}  // namespace

RequestMachine::RequestMachine(RequestParams params,
                               TokenJudge judge,
                               RequestTrace* trace)
    : params_(std::move(params)),
      judge_(std::move(judge)),
      trace_(trace),
      log_(params_.prompt),
      drafter_(params_.vocab_size,
               params_.speculation.run_length,
               params_.speculation.window,
               params_.speculation.rule) {
  log_.insert(log_.end(), params_.resumed.begin(), params_.resumed.end());
  if (params_.speculation.enabled && params_.adapt.has_value()) {
    const SpeculationSettings& settings = params_.speculation;
    control_.emplace(
        *params_.adapt,
        SpeculationBounds{.run_length = settings.run_length,
                          .fixed_run_length = settings.fixed_run_length,
                          .window = settings.window,
                          .fixed_window = settings.fixed_window,
                          .patience = settings.patience});
    // Until a few commits have come.
    withholding_ = true;
    if (params_.local_run_length > 0) {
      local_enough_ = control_->settings().local_enough;
    }
  }
  patience_ =
      params_.speculation.enabled ? WantedPatience() : absl::ZeroDuration();
  // Without credit nothing would ever be committed.
  params_.credit = std::max(params_.credit, 1);
  decode_until_ = static_cast<int64_t>(log_.size()) + params_.credit;
}

std::vector<Action> RequestMachine::Start() {
  Actions actions;
  // In the order in which a verifier judges: a stop token before the limit.
  if (params_.resumed_stop.has_value()) {
    Finish(
        absl::OkStatus(), FinishReason::kStop, params_.resumed_stop, &actions);
    return actions;
  }
  if (params_.resumed_stop_text) {
    Finish(StoppedByText(), &actions);
    return actions;
  }
  if (CompletionLength() >= params_.max_tokens) {
    Finish(absl::OkStatus(), FinishReason::kLength, std::nullopt, &actions);
    return actions;
  }
  if (params_.speculation.enabled && params_.draft_nodes && !withholding_) {
    OpenNextDrafter(&actions);
  }
  OpenVerifierStream(&actions);
  return actions;
}

std::vector<Action> RequestMachine::OnCommit(const Commit& commit,
                                             const PassTimes& times) {
  Actions actions;
  if (finished_) {
    return actions;
  }
  if (absl::Status status = CheckCommit(commit); !status.ok()) {
    actions.push_back(CloseVerifier{});
    MoveVerifier(status, &actions);
    return actions;
  }
  // The first pass of a stream computes its prompt as well.
  if (committed_here_) TimePass(commit, times);
  committed_here_ = true;
  TakeCounters(commit.counters);
  const size_t known = log_.size() - static_cast<size_t>(commit.position);
  const size_t skip = std::min(known, commit.tokens.size());
  std::vector<int32_t> added(
      commit.tokens.begin() + static_cast<std::ptrdiff_t>(skip),
      commit.tokens.end());
  const std::optional<size_t> end = JudgedEnd(added, commit.finish);
  // What lies behind a stop is dropped before anything counts or tells it.
  if (end.has_value()) added.resize(*end);
  if (!added.empty()) {
    const int first = static_cast<int>(skip);
    const int32_t num_accepted = std::clamp(
        commit.num_accepted - first, 0, static_cast<int>(added.size()));
    CountPass(commit, first, num_accepted);
    const int32_t first_index = CompletionLength();
    log_.insert(log_.end(), added.begin(), added.end());
    actions.push_back(EmitTokens{first_index,
                                 added,
                                 num_accepted,
                                 LogprobsOf(commit, skip, added.size()),
                                 Traced(commit,
                                        times,
                                        {.first = skip,
                                         .size = added.size(),
                                         .num_accepted = num_accepted})});
    if (end.has_value()) {
      Finish(StoppedByText(), &actions);
      return actions;
    }
    const bool full = CompletionLength() >= params_.max_tokens;
    if (commit.finish == FinishReason::kNone && full) {
      Finish(absl::OkStatus(), FinishReason::kLength, std::nullopt, &actions);
      return actions;
    }
    if (commit.finish == FinishReason::kNone) {
      const absl::Duration before = patience_;
      TellDrafter(commit, added.size(), &actions);
      Adapt(commit, added.size(), &actions);
      answered_ = false;
      drafter_idle_ = !drafter_open_ || told_ < log_.size();
      open_ = !commit.local_next;
      due_patience_ = !drafter_idle_ && drafter_.num_outstanding() == 0
                          ? std::min(before, patience_)
                          : absl::ZeroDuration();
    }
  }
  if (added.empty() && trace_ != nullptr) trace_->OnEmptyCommit(commit, times);
  if (commit.finish != FinishReason::kNone) {
    Finish(absl::OkStatus(), commit.finish, commit.stop_token_id, &actions);
  }
  return actions;
}

std::shared_ptr<const TracedPass> RequestMachine::Traced(
    const Commit& commit,
    const PassTimes& times,
    const RequestTrace::Share& share) {
  if (trace_ == nullptr) return nullptr;
  return std::make_shared<const TracedPass>(
      trace_->OnPass(commit, times, share));
}

std::optional<size_t> RequestMachine::JudgedEnd(absl::Span<const int32_t> added,
                                                FinishReason finish) {
  if (judge_ == nullptr) return std::nullopt;
  // EOS and stop tokens come before stop texts, these before the limit.
  const size_t judged = finish == FinishReason::kStop && !added.empty()
                            ? added.size() - 1
                            : added.size();
  for (size_t i = 0; i < judged; ++i) {
    if (judge_(added[i])) return i + 1;
  }
  return std::nullopt;
}

absl::Status RequestMachine::CheckCommit(const Commit& commit) const {
  const int64_t length = static_cast<int64_t>(log_.size());
  if (commit.position < 0 || commit.position > length) {
    return absl::InternalError(
        absl::StrCat("the verifier's commit at position ",
                     commit.position,
                     " leaves a gap: the log has ",
                     length,
                     " tokens"));
  }
  if (commit.tokens.empty() && commit.finish == FinishReason::kNone) {
    return absl::InternalError("the verifier's commit has no tokens");
  }
  const size_t known = static_cast<size_t>(length - commit.position);
  for (size_t i = 0; i < commit.tokens.size(); ++i) {
    const int32_t token = commit.tokens[i];
    const size_t at = static_cast<size_t>(commit.position) + i;
    if (token < 0 || token >= params_.vocab_size) {
      return absl::InternalError(absl::StrCat("the verifier committed token ",
                                              token,
                                              ", outside the vocabulary of ",
                                              params_.vocab_size));
    }
    if (i < known && log_[at] != token) {
      return absl::InternalError(absl::StrCat(
          "the verifier's commit contradicts the log at position ", at));
    }
  }
  const size_t num_new =
      commit.tokens.size() - std::min(known, commit.tokens.size());
  if (CompletionLength() + static_cast<int64_t>(num_new) > params_.max_tokens) {
    return absl::InternalError(absl::StrCat(
        "the verifier's commit exceeds max_tokens = ", params_.max_tokens));
  }
  if (commit.finish != FinishReason::kNone &&
      commit.finish != FinishReason::kStop &&
      commit.finish != FinishReason::kLength) {
    return absl::InternalError("the verifier's finish has no known reason");
  }
  return CheckCommitCounts(commit, num_new);
}

absl::Status RequestMachine::CheckCommitCounts(const Commit& commit,
                                               size_t num_new) const {
  const int64_t size = static_cast<int64_t>(commit.tokens.size());
  if (commit.num_accepted < 0 || commit.num_proposed < commit.num_accepted ||
      size < commit.num_accepted || size > int64_t{commit.num_proposed} + 1) {
    return absl::InternalError(absl::StrCat("the verifier's commit of ",
                                            size,
                                            " tokens claims ",
                                            commit.num_accepted,
                                            " accepted of ",
                                            commit.num_proposed,
                                            " proposed"));
  }
  if (commit.local && commit.num_proposed > params_.local_run_length) {
    return absl::InternalError(absl::StrCat("the verifier's commit claims ",
                                            commit.num_proposed,
                                            " local draft tokens, more than ",
                                            params_.local_run_length));
  }
  const DecodeCounters& now = commit.counters;
  const int64_t verified =
      verified_tokens_ +
      (num_new > 0 && !commit.local ? commit.num_proposed : 0);
  if (now.overlapped < counters_.overlapped || now.stale < counters_.stale ||
      now.trimmed < counters_.trimmed || now.overlapped > sent_tokens_ ||
      now.stale > sent_tokens_ || now.trimmed > sent_tokens_ ||
      verified + Sum(now) > sent_tokens_) {
    return absl::InternalError(
        absl::StrCat("the verifier's counters do not add up to the ",
                     sent_tokens_,
                     " draft tokens that it was sent"));
  }
  return absl::OkStatus();
}

void RequestMachine::CountPass(const Commit& commit,
                               int first,
                               int num_accepted) {
  ++figures_.num_passes;
  if (!commit.local) {
    verified_tokens_ += commit.num_proposed;
  } else if (commit.num_proposed > 0) {
    // Nobody has seen them before.
    figures_.num_drafted_tokens += commit.num_proposed;
    ++figures_.num_local_steps;
    figures_.num_local_draft_tokens += commit.num_proposed;
    figures_.num_accepted_local_draft_tokens += num_accepted;
  }
  figures_.num_draft_tokens += commit.num_proposed;
  figures_.num_accepted_draft_tokens += num_accepted;
  if (commit.num_proposed > 0) {
    ++figures_.num_spec_steps;
    CountAt(&figures_.acceptance_histogram, num_accepted);
  }
  for (int i = 0; i < commit.num_proposed; ++i) {
    CountAt(&figures_.draft_tokens_per_position, i);
  }
  figures_.accepted_tokens_per_position.resize(
      figures_.draft_tokens_per_position.size());
  for (int i = first; i < first + num_accepted; ++i) {
    ++figures_.accepted_tokens_per_position[static_cast<size_t>(i)];
  }
}

void RequestMachine::TakeCounters(const DecodeCounters& counters) {
  figures_.num_overlapped_tokens += counters.overlapped - counters_.overlapped;
  figures_.num_stale_tokens += counters.stale - counters_.stale;
  figures_.num_trimmed_tokens += counters.trimmed - counters_.trimmed;
  counters_ = counters;
}

std::vector<Action> RequestMachine::OnVerifierClosed(const absl::Status& status,
                                                     bool could_open) {
  Actions actions;
  if (finished_ || !verifier_open_) {
    return actions;
  }
  if (could_open && IsMovable(status.code())) {
    MoveVerifier(status, &actions);
    return actions;
  }
  verifier_open_ = false;
  Finish(could_open || absl::IsResourceExhausted(status)
             ? status
             : absl::UnavailableError(status.message().empty()
                                          ? "there is no verifier"
                                          : status.message()),
         FinishReason::kError,
         std::nullopt,
         &actions);
  return actions;
}

void RequestMachine::MoveVerifier(const absl::Status& status,
                                  Actions* actions) {
  verifier_open_ = false;
  // A node that drains was not killed by this request.
  if (!IsDraining(status)) ++verifiers_lost_;
  if (verifiers_lost_ > params_.max_moves) {
    Finish(absl::UnavailableError(absl::StrCat("the request lost ",
                                               verifiers_lost_,
                                               " verifiers; the last: ",
                                               status.ToString())),
           FinishReason::kError,
           std::nullopt,
           actions);
    return;
  }
  ReopenVerifier(actions);
}

std::vector<Action> RequestMachine::OnVerifierRefused() {
  Actions actions;
  if (!finished_ && verifier_open_) ReopenVerifier(&actions);
  return actions;
}

void RequestMachine::OpenVerifierStream(Actions* actions) {
  verifier_open_ = true;
  committed_here_ = false;
  sent_tokens_ = 0;
  verified_tokens_ = 0;
  counters_ = {};
  if (trace_ != nullptr) trace_->OnVerifierOpened();
  actions->push_back(
      OpenVerifier{log_,
                   source_,
                   ToInt32(decode_until_),
                   patience_,
                   MaxDraftRows(),
                   params_.speculation.enabled ? params_.local_run_length : 0,
                   local_enough_});
  due_patience_ = absl::ZeroDuration();
}

SendDecodeTune RequestMachine::verifier_settings() const {
  SendDecodeTune settings;
  settings.patience = patience_;
  settings.decode_until = ToInt32(decode_until_);
  settings.local_enough = local_enough_;
  return settings;
}

int RequestMachine::MaxDraftRows() const {
  const SpeculationSettings& settings = params_.speculation;
  if (!settings.enabled) return 0;
  return control_.has_value() && !settings.fixed_window
             ? std::max(settings.window, kMaxRunLength)
             : settings.window;
}

void RequestMachine::ReopenVerifier(Actions* actions) {
  OpenVerifierStream(actions);
  if (drafter_open_ && withholding_) {
    // It knows too little to be told of the move; another is opened in time.
    drafter_open_ = false;
    actions->push_back(CloseDrafter{source_, /*lost=*/false});
  } else if (drafter_open_) {
    CatchUp(actions);
    const int32_t length = static_cast<int32_t>(log_.size());
    actions->push_back(SendRewind{source_, length});
    drafter_.OnRewind(length);
    ArmTimer(actions);
  }
}

std::vector<Action> RequestMachine::OnClientTook(int count) {
  Actions actions;
  if (finished_ || !verifier_open_) {
    return actions;
  }
  const int64_t taken = std::clamp(count, 0, CompletionLength()) +
                        static_cast<int64_t>(params_.prompt.size());
  // In steps of half the credit: the verifier hears of it seldom, and never
  // creeps along the edge of its credit one token at a time.
  if (2 * (decode_until_ - taken) < params_.credit) {
    decode_until_ = taken + params_.credit;
    SendDecodeTune tune;
    tune.decode_until = ToInt32(decode_until_);
    actions.push_back(tune);
  }
  return actions;
}

std::vector<Action> RequestMachine::OnClientGone(const absl::Status& status) {
  Actions actions;
  if (finished_) {
    return actions;
  }
  Finish(status.ok() ? absl::CancelledError("the client has gone") : status,
         FinishReason::kAborted,
         std::nullopt,
         &actions);
  return actions;
}

void RequestMachine::Finish(const absl::Status& status,
                            FinishReason reason,
                            std::optional<int32_t> stop_token_id,
                            Actions* actions) {
  Finish(FinishRequest{status, reason, stop_token_id}, actions);
}

void RequestMachine::Finish(FinishRequest finish, Actions* actions) {
  finished_ = true;
  if (std::exchange(drafter_open_, false)) {
    actions->push_back(CloseDrafter{source_});
  }
  if (std::exchange(verifier_open_, false)) {
    actions->push_back(CloseVerifier{});
  }
  figures_.num_unused_tokens =
      figures_.num_drafted_tokens - figures_.num_draft_tokens -
      figures_.num_overlapped_tokens - figures_.num_stale_tokens -
      figures_.num_trimmed_tokens;
  if (num_plain_steps_ >= kEnoughPlainSteps) {
    figures_.plain_step = plain_time_ / num_plain_steps_;
  } else if (control_.has_value()) {
    figures_.plain_step = absl::Seconds(control_->estimates().costs.plain());
  }
  if (trace_ != nullptr) {
    finish.trace = std::make_shared<const TracedPass>(
        trace_->OnFinished(static_cast<int>(log_.size())));
  }
  actions->push_back(std::move(finish));
}

int RequestMachine::CompletionLength() const {
  return static_cast<int>(log_.size() - params_.prompt.size());
}

}  // namespace specwire::coordinator
