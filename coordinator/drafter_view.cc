// SPDX-License-Identifier: Apache-2.0
#include "coordinator/drafter_view.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace specwire::coordinator {
namespace {

// Messages that a stream may send beyond what its events call for.
constexpr int64_t kSpareMessages = 64;

}  // namespace

DrafterView::DrafterView(int vocab_size,
                         int run_length,
                         int window,
                         AcceptanceRule rule)
    : vocab_size_(vocab_size),
      run_length_(std::max(run_length, 1)),
      window_(std::max(window, run_length_)),
      least_run_length_(run_length_),
      rule_(rule) {}

void DrafterView::OnOpened(int length) {
  messages_left_ = kSpareMessages + MessagesPerEvent();
  path_.clear();
  num_given_ = 0;
  fence_ = length;
  verifier_fence_ = 0;
  BeginDebt(length);
}

void DrafterView::OnRewind(int length) {
  messages_left_ += MessagesPerEvent();
  num_given_ = 0;
  verifier_fence_ = length;
  BeginDebt(length);
}

DrafterView::Comparison DrafterView::OnCommit(absl::Span<const int32_t> log,
                                              size_t size) {
  messages_left_ += MessagesPerEvent();
  const Comparison comparison = Compare(log, size);
  if (num_given_ == 0 && !owes_) {
    BeginDebt(static_cast<int>(log.size()));
  }
  return comparison;
}

DrafterView::Comparison DrafterView::OnWithheld(absl::Span<const int32_t> log,
                                                size_t size) {
  owes_ = false;
  return Compare(log, size);
}

void DrafterView::OnResumed(int length) {
  messages_left_ += MessagesPerEvent();
  if (num_given_ == 0) BeginDebt(length);
}

void DrafterView::OnTuned(int run_length, int window) {
  run_length_ = std::max(run_length_, run_length);
  window_ = std::max(window_, window);
  least_run_length_ = std::min(least_run_length_, std::max(run_length, 1));
  // It is free to go on where it had stopped.
  messages_left_ += MessagesPerEvent();
}

DrafterView::Comparison DrafterView::Compare(absl::Span<const int32_t> log,
                                             size_t size) {
  const absl::Span<const int32_t> tokens = log.subspan(log.size() - size);
  const size_t compared = std::min(tokens.size(), path_.size());
  const auto end = path_.begin() + static_cast<std::ptrdiff_t>(compared);
  const auto matched = static_cast<int>(
      std::mismatch(path_.begin(), end, tokens.begin()).first - path_.begin());
  const Comparison comparison = {matched, static_cast<int>(compared)};
  if (matched == comparison.compared) {
    path_.erase(path_.begin(), end);
    num_given_ = std::max(0, num_given_ - matched);
  } else {
    // All that it sends before it sees this commit is on the wrong path.
    path_.clear();
    num_given_ = 0;
    fence_ = static_cast<int>(log.size());
  }
  return comparison;
}

absl::StatusOr<DrafterView::Verdict> DrafterView::OnProposal(
    const Proposal& proposal, absl::Span<const int32_t> log) {
  const int length = static_cast<int>(log.size());
  SPECWIRE_RETURN_IF_ERROR(Check(proposal, length));
  Verdict verdict;
  const bool had_path = has_path();
  bool answers = false;
  if (proposal.based_on < fence_) {
    verdict.stale = static_cast<int64_t>(proposal.tokens.size());
  } else if (proposal.tokens.empty()) {
    answers = proposal.based_on >= verifier_fence_ &&
              proposal.position == length + num_given_;
    verdict.forward = answers;
    verdict.begins = !had_path;
  } else {
    SPECWIRE_ASSIGN_OR_RETURN(verdict, TakeTokens(proposal, log));
    answers = num_given_ > 0;
  }
  if (answers) {
    owes_ = false;
  } else if (owes_ && proposal.based_on >= owed_length_ &&
             proposal.based_on < length) {
    // It did answer, but the log has grown since: now it owes for that.
    BeginDebt(length);
  }
  return verdict;
}

absl::Status DrafterView::Check(const Proposal& proposal, int length) {
  if (--messages_left_ < 0) {
    return absl::ResourceExhaustedError(
        "the drafter sends more proposals than its commits call for");
  }
  const int64_t size = static_cast<int64_t>(proposal.tokens.size());
  if (size > run_length_) {
    return absl::InvalidArgumentError(
        absl::StrCat("proposal.tokens must have at most run_length = ",
                     run_length_,
                     " entries, got ",
                     size));
  }
  if (proposal.based_on < 0 || proposal.based_on > length) {
    return absl::InvalidArgumentError(
        absl::StrCat("proposal.based_on must be in [0, ",
                     length,
                     "], the committed length, got ",
                     proposal.based_on));
  }
  const int64_t last = int64_t{proposal.based_on} + window_ - size;
  if (proposal.position < 0 || proposal.position > last) {
    return absl::InvalidArgumentError(
        absl::StrCat("proposal.position must be in [0, ",
                     last,
                     "] for ",
                     size,
                     " tokens based on ",
                     proposal.based_on,
                     " in a window of ",
                     window_,
                     ", got ",
                     proposal.position));
  }
  for (const int32_t token : proposal.tokens) {
    if (token < 0 || token >= vocab_size_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "proposal.tokens must be in [0, ", vocab_size_, "), got ", token));
    }
  }
  if (!(proposal.confidence >= 0 && proposal.confidence <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "proposal.confidence must be in [0, 1], got ", proposal.confidence));
  }
  return CheckDistributions(proposal);
}

absl::Status DrafterView::CheckDistributions(const Proposal& proposal) const {
  const size_t needed =
      rule_ == AcceptanceRule::kRatio ? proposal.tokens.size() : 0;
  if (proposal.q.size() != needed) {
    return absl::InvalidArgumentError(absl::StrCat("proposal.q must have ",
                                                   needed,
                                                   " entries for ",
                                                   proposal.tokens.size(),
                                                   " tokens, got ",
                                                   proposal.q.size()));
  }
  for (size_t i = 0; i < needed; ++i) {
    SPECWIRE_RETURN_IF_ERROR(
        ValidateDraft(proposal.q[i], proposal.tokens[i], vocab_size_));
  }
  return absl::OkStatus();
}

absl::StatusOr<DrafterView::Verdict> DrafterView::TakeTokens(
    const Proposal& proposal, absl::Span<const int32_t> log) {
  const int64_t size = static_cast<int64_t>(proposal.tokens.size());
  const int64_t length = static_cast<int64_t>(log.size());
  const int64_t path_end = length + static_cast<int64_t>(path_.size());
  const int64_t end = proposal.position + size;
  // What lies before that it had been told.
  const int64_t drafted_from = std::max(proposal.position, proposal.based_on);
  for (int64_t i = 0; i < size && proposal.position + i < path_end; ++i) {
    const int64_t at = proposal.position + i;
    const int32_t known = at < length ? log[static_cast<size_t>(at)]
                                      : path_[static_cast<size_t>(at - length)];
    if (proposal.tokens[static_cast<size_t>(i)] == known) {
      continue;
    }
    if (at < proposal.based_on || !path_.empty()) {
      // Only a commit that it had not seen makes a drafter change its mind. A
      // verifier that had taken its earlier word could not be told apart from
      // one that has not, and lock-step could wait for ever.
      return absl::InvalidArgumentError(absl::StrCat(
          "proposal.tokens contradict what was committed or proposed for "
          "position ",
          at));
    }
    fence_ = std::max(fence_, static_cast<int>(at) + 1);
    const int late = static_cast<int>(at - drafted_from);
    return Verdict{.forward = false,
                   .overlapped = i,
                   .stale = size - i,
                   .begins = true,
                   .late = {late, late + 1}};
  }
  const int64_t overlapped =
      std::clamp<int64_t>(length - proposal.position, 0, size);
  Verdict dropped = {
      .forward = false, .overlapped = overlapped, .stale = size - overlapped};
  if (proposal.position > path_end) {
    return dropped;
  }
  const bool begins = path_.empty();
  const int late = static_cast<int>(std::clamp<int64_t>(
      length - drafted_from, 0, std::max<int64_t>(end - drafted_from, 0)));
  if (begins) {
    dropped.begins = true;
    dropped.late = {late, late};
  }
  if (end > path_end) {
    path_.insert(path_.end(),
                 proposal.tokens.begin() +
                     static_cast<std::ptrdiff_t>(path_end - proposal.position),
                 proposal.tokens.end());
  }
  // Not for the verifier, a gap for it, or nothing new to it.
  if (proposal.based_on < verifier_fence_ ||
      proposal.position > length + num_given_ || end <= length + num_given_) {
    return dropped;
  }
  num_given_ = static_cast<int>(end - length);
  Verdict given = {.forward = true, .begins = begins};
  if (begins) given.late = {late, late};
  return given;
}

void DrafterView::BeginDebt(int length) {
  owes_ = true;
  ++owed_;
  owed_length_ = length;
}

}  // namespace specwire::coordinator
