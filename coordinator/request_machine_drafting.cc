// SPDX-License-Identifier: Apache-2.0

// The request machine's dealings with drafters; those with verifiers and the
// client are in request_machine.cc.

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/base/draining.h"
#include "coordinator/request_machine.h"

namespace specwire::coordinator {
namespace {

// Drafters that a request may lose before it stays plain.
constexpr int kMaxDraftersLost = 8;
// Commits before an adapting request opens a drafter: reading the prompt is not
// to delay the first token where both share a machine, and the passes until
// then show what one takes that no drafter slows.
constexpr size_t kCommitsBeforeDrafter = 2;
// An answer that is later than so many passes is no later for control.
constexpr size_t kMostLag = 16;

}  // namespace

std::vector<Action> RequestMachine::OnProposal(const Proposal& proposal) {
  Actions actions;
  if (finished_) {
    return actions;
  }
  const int64_t size = static_cast<int64_t>(proposal.tokens.size());
  figures_.num_drafted_tokens += size;
  if (!drafter_open_ || proposal.source != source_) {
    figures_.num_stale_tokens += size;
    if (trace_ != nullptr) trace_->OnDropped(proposal, 0);
    return actions;
  }
  const absl::StatusOr<DrafterView::Verdict> verdict =
      drafter_.OnProposal(proposal, log_);
  if (!verdict.ok()) {
    figures_.num_stale_tokens += size;
    if (trace_ != nullptr) trace_->OnDropped(proposal, 0);
    actions.push_back(CloseDrafter{source_});
    ReplaceDrafter(&actions);
    return actions;
  }
  figures_.num_overlapped_tokens += verdict->overlapped;
  figures_.num_stale_tokens += verdict->stale;
  if (verdict->begins) ObserveAnswer(proposal, *verdict);
  // The drafter serves: waiting for it may pay.
  SetPatience(WantedPatience(), &actions);
  // Nobody waits to hear that there is nothing, and a message costs a busy
  // verifier more than it seems.
  const bool unheard =
      proposal.tokens.empty() && patience_ == absl::ZeroDuration();
  if (trace_ != nullptr) {
    verdict->forward ? trace_->OnForwarded(proposal)
                     : trace_->OnDropped(proposal, verdict->overlapped);
  }
  if (verdict->forward && !unheard) {
    sent_tokens_ += size;
    actions.push_back(SendProposal{proposal});
  }
  ArmTimer(&actions);
  return actions;
}

std::vector<Action> RequestMachine::OnDrafterClosed(int32_t source,
                                                    const absl::Status& status,
                                                    bool could_open) {
  Actions actions;
  if (finished_ || !drafter_open_ || source != source_) {
    return actions;
  }
  if (could_open) {
    // One that drains has done nothing wrong.
    if (IsDraining(status)) --drafters_lost_;
    ReplaceDrafter(&actions);
  } else {
    drafter_open_ = false;
    SetPatience(absl::ZeroDuration(), &actions);
  }
  return actions;
}

std::vector<Action> RequestMachine::OnDrafterAvailable() {
  Actions actions;
  if (!finished_ && verifier_open_ && params_.speculation.enabled &&
      !drafter_open_ && !withholding_ && drafters_lost_ <= kMaxDraftersLost) {
    OpenNextDrafter(&actions);
  }
  return actions;
}

std::vector<Action> RequestMachine::OnDrafterTimeout(int32_t source,
                                                     int64_t owed) {
  Actions actions;
  if (finished_ || !drafter_open_ || source != source_ || !drafter_.owes() ||
      owed != drafter_.owed()) {
    return actions;
  }
  actions.push_back(CloseDrafter{source_});
  ReplaceDrafter(&actions);
  return actions;
}

void RequestMachine::ObserveAnswer(const Proposal& proposal,
                                   const DrafterView::Verdict& verdict) {
  answered_ = true;
  if (!control_.has_value()) return;
  // Passes since it was told what it goes by.
  const auto begin = commit_ends_.end() - static_cast<std::ptrdiff_t>(std::min(
                                              commit_ends_.size(), kMostLag));
  const auto lag = std::count_if(begin, commit_ends_.end(), [&](int end) {
    return end > proposal.based_on;
  });
  control_->OnAnswer(static_cast<int>(proposal.tokens.size()),
                     proposal.confidence,
                     static_cast<int>(lag));
  control_->OnCompared(
      verdict.late.matched, verdict.late.compared, drafter_.has_path());
}

void RequestMachine::TimePass(const Commit& commit, const PassTimes& times) {
  figures_.passes_time += std::max(times.wait, absl::ZeroDuration()) +
                          std::max(times.verify, absl::ZeroDuration());
  if (commit.num_proposed == 0 && drafter_idle_) {
    // A verifier that waits for credit, or for others, is none the slower.
    plain_time_ += times.verify + std::min(times.wait, times.verify / 4);
    ++num_plain_steps_;
  }
  if (!control_.has_value()) return;
  control_->OnPass({.num_proposed = commit.num_proposed,
                    .num_committed = static_cast<int>(commit.tokens.size()),
                    .local = commit.local,
                    .alone = drafter_idle_,
                    .open = open_,
                    .verify = times.verify,
                    .wait = times.wait,
                    .patience = due_patience_,
                    .answered = answered_});
}

void RequestMachine::TellDrafter(const Commit& commit,
                                 size_t size,
                                 Actions* actions) {
  if (!drafter_open_) return;
  const int outstanding = drafter_.num_outstanding();
  DrafterView::Comparison comparison;
  if (withholding_ || (commit.local_next && control_.has_value())) {
    comparison = drafter_.OnWithheld(log_, size);
  } else {
    CatchUp(actions);
    comparison = drafter_.OnCommit(log_, size);
    ArmTimer(actions);
  }
  if (comparison.matched < comparison.compared) {
    if (outstanding > commit.num_proposed) ++figures_.num_ahead_misses;
  } else if (drafter_.num_outstanding() > 0) {
    ++figures_.num_ahead_hits;
  }
  if (control_.has_value()) {
    control_->OnCompared(
        comparison.matched, comparison.compared, drafter_.has_path());
  }
}

void RequestMachine::CatchUp(Actions* actions) {
  if (told_ >= log_.size()) return;
  const auto begin = log_.begin() + static_cast<std::ptrdiff_t>(told_);
  actions->push_back(
      SendCommit{source_, static_cast<int32_t>(told_), {begin, log_.end()}});
  told_ = log_.size();
}

void RequestMachine::Adapt(const Commit& commit,
                           size_t size,
                           Actions* actions) {
  if (!control_.has_value()) return;
  commit_ends_.push_back(static_cast<int>(log_.size()));
  double speedup = 1;
  if (commit.local) {
    speedup = control_->local_speedup();
  } else if (drafter_open_ && !withholding_) {
    speedup = control_->predicted_speedup();
  }
  predicted_tokens_ += static_cast<double>(size);
  predicted_time_ += static_cast<double>(size) / speedup;
  figures_.predicted_speedup = predicted_tokens_ / predicted_time_;
  control_->OnCommitted(static_cast<int>(size));
  if (withholding_ && control_->drafting() && params_.draft_nodes &&
      !commit.local_next && commit_ends_.size() >= kCommitsBeforeDrafter) {
    withholding_ = false;
    if (drafter_open_) {
      CatchUp(actions);
      drafter_.OnResumed(static_cast<int>(log_.size()));
      ArmTimer(actions);
    } else if (drafters_lost_ <= kMaxDraftersLost) {
      OpenNextDrafter(actions);
    }
  } else if (!control_->drafting()) {
    withholding_ = true;
  }
  TuneDrafter(actions);
  // Without a drafter there is nothing to wait for.
  SetWaiting(
      drafter_open_ || withholding_ ? WantedPatience() : absl::ZeroDuration(),
      params_.local_run_length > 0 ? control_->settings().local_enough : 0,
      actions);
}

void RequestMachine::TuneDrafter(Actions* actions) {
  if (!drafter_open_ || told_ < log_.size()) return;
  const ChosenSettings& wanted = control_->settings();
  SendDraftTune tune;
  tune.source = source_;
  if (wanted.run_length != told_settings_.run_length) {
    tune.run_length = wanted.run_length;
  }
  if (wanted.window != told_settings_.window) tune.window = wanted.window;
  if (wanted.min_survival != told_settings_.min_survival) {
    tune.min_survival = wanted.min_survival;
  }
  if (!tune.run_length.has_value() && !tune.window.has_value() &&
      !tune.min_survival.has_value()) {
    return;
  }
  told_settings_ = wanted;
  figures_.longest_run_length =
      std::max(figures_.longest_run_length, wanted.run_length);
  drafter_.OnTuned(wanted.run_length, wanted.window);
  actions->push_back(tune);
}

absl::Duration RequestMachine::WantedPatience() const {
  if (withholding_ || !params_.draft_nodes) return absl::ZeroDuration();
  return control_.has_value() ? control_->settings().patience
                              : params_.speculation.patience;
}

std::optional<SpeculationEstimates> RequestMachine::estimates() const {
  if (!control_.has_value()) return std::nullopt;
  return control_->estimates();
}

void RequestMachine::OpenNextDrafter(Actions* actions) {
  drafter_open_ = true;
  ++source_;
  if (params_.speculation.rule == AcceptanceRule::kRatio) {
    // Before it drafts anything: were it to begin with the first proposal,
    // positions would have one or not by how fast it came.
    SetPatience(params_.speculation.patience, actions);
  }
  if (control_.has_value()) {
    told_settings_ = control_->settings();
  } else {
    told_settings_.run_length = params_.speculation.run_length;
    told_settings_.window = params_.speculation.window;
  }
  figures_.longest_run_length =
      std::max(figures_.longest_run_length, told_settings_.run_length);
  actions->push_back(OpenDrafter{source_,
                                 log_,
                                 told_settings_.run_length,
                                 told_settings_.window,
                                 told_settings_.min_survival});
  drafter_.OnTuned(told_settings_.run_length, told_settings_.window);
  told_ = log_.size();
  drafter_.OnOpened(static_cast<int>(log_.size()));
  ArmTimer(actions);
}

void RequestMachine::ReplaceDrafter(Actions* actions) {
  drafter_open_ = false;
  ++drafters_lost_;
  const bool again = drafters_lost_ <= kMaxDraftersLost;
  if (!again || params_.speculation.rule != AcceptanceRule::kRatio) {
    SetPatience(absl::ZeroDuration(), actions);
  }
  if (again && !withholding_) {
    OpenNextDrafter(actions);
  }
}

void RequestMachine::SetPatience(absl::Duration patience, Actions* actions) {
  SetWaiting(patience, local_enough_, actions);
}

void RequestMachine::SetWaiting(absl::Duration patience,
                                float local_enough,
                                Actions* actions) {
  SendDecodeTune tune;
  if (patience != patience_) tune.patience = patience;
  if (local_enough != local_enough_) tune.local_enough = local_enough;
  if (!tune.patience.has_value() && !tune.local_enough.has_value()) return;
  patience_ = patience;
  local_enough_ = local_enough;
  actions->push_back(tune);
}

void RequestMachine::ArmTimer(Actions* actions) {
  if (drafter_.owes() && drafter_.owed() != armed_) {
    armed_ = drafter_.owed();
    actions->push_back(ArmDrafterTimer{source_, armed_});
  }
}

}  // namespace specwire::coordinator
