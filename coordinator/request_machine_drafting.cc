// SPDX-License-Identifier: Apache-2.0

// The request machine's dealings with drafters; those with verifiers and the
// client are in request_machine.cc.

#include <cstddef>
#include <utility>

#include "coordinator/request_machine.h"

namespace specwire::coordinator {
namespace {

// Drafters that a request may lose before it stays plain.
constexpr int kMaxDraftersLost = 8;

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
    return actions;
  }
  const bool owed = drafter_.owes();
  const absl::StatusOr<DrafterView::Verdict> verdict =
      drafter_.OnProposal(proposal, log_);
  if (!verdict.ok()) {
    figures_.num_stale_tokens += size;
    actions.push_back(CloseDrafter{source_});
    ReplaceDrafter(&actions);
    return actions;
  }
  figures_.num_overlapped_tokens += verdict->overlapped;
  figures_.num_stale_tokens += verdict->stale;
  if (control_.has_value() && owed && !drafter_.owes()) {
    control_->OnAnswer(!proposal.tokens.empty());
  }
  // The drafter serves: waiting for it may pay.
  SetPatience(WantedPatience(), &actions);
  if (verdict->forward) {
    sent_tokens_ += size;
    actions.push_back(SendProposal{proposal});
  }
  ArmTimer(&actions);
  return actions;
}

std::vector<Action> RequestMachine::OnDrafterClosed(int32_t source,
                                                    const absl::Status&,
                                                    bool could_open) {
  Actions actions;
  if (finished_ || !drafter_open_ || source != source_) {
    return actions;
  }
  if (could_open) {
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

void RequestMachine::TellDrafter(size_t size, Actions* actions) {
  if (!drafter_open_) return;
  DrafterView::Comparison comparison;
  if (withholding_) {
    comparison = drafter_.OnWithheld(log_, size);
  } else {
    const auto begin = log_.end() - static_cast<std::ptrdiff_t>(size);
    actions->push_back(SendCommit{source_,
                                  static_cast<int32_t>(log_.size() - size),
                                  {begin, log_.end()}});
    told_ = log_.size();
    comparison = drafter_.OnCommit(log_, size);
    ArmTimer(actions);
  }
  if (control_.has_value()) {
    control_->OnCompared(comparison.matched, comparison.compared);
  }
}

void RequestMachine::Adapt(const Commit& commit,
                           const PassTimes& times,
                           size_t size,
                           Actions* actions) {
  TellDrafter(size, actions);
  if (!control_.has_value()) return;
  control_->OnPass(commit.num_proposed, times.verify, times.wait, was_due_);
  control_->OnCommitted(static_cast<int>(size));
  was_due_ = drafter_.num_outstanding() == 0;
  if (withholding_ && control_->drafting()) {
    withholding_ = false;
    if (drafter_open_) {
      const auto begin = log_.begin() + static_cast<std::ptrdiff_t>(told_);
      actions->push_back(SendCommit{
          source_, static_cast<int32_t>(told_), {begin, log_.end()}});
      told_ = log_.size();
      drafter_.OnResumed(static_cast<int>(log_.size()));
      ArmTimer(actions);
    } else if (drafters_lost_ <= kMaxDraftersLost) {
      OpenNextDrafter(actions);
    }
  } else if (!control_->drafting()) {
    withholding_ = true;
  }
  // Without a drafter there is nothing to wait for.
  if (drafter_open_ || withholding_) SetPatience(WantedPatience(), actions);
}

absl::Duration RequestMachine::WantedPatience() const {
  if (control_.has_value() && !control_->waiting()) {
    return absl::ZeroDuration();
  }
  return params_.speculation.patience;
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
  actions->push_back(OpenDrafter{source_, log_});
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
  if (patience == patience_) {
    return;
  }
  patience_ = patience;
  SendDecodeTune tune;
  tune.patience = patience;
  actions->push_back(tune);
}

void RequestMachine::ArmTimer(Actions* actions) {
  if (drafter_.owes() && drafter_.owed() != armed_) {
    armed_ = drafter_.owed();
    actions->push_back(ArmDrafterTimer{source_, armed_});
  }
}

}  // namespace specwire::coordinator
