// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/draft_path.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace specwire {
namespace {

absl::Status CheckSettings(int run_length, int window, AcceptanceRule rule) {
  if (run_length < 1 || run_length > kMaxRunLength) {
    return absl::InvalidArgumentError(absl::StrCat(
        "run_length must be in [1, ", kMaxRunLength, "], got ", run_length));
  }
  if (window < run_length || window > kMaxWindow) {
    return absl::InvalidArgumentError(
        absl::StrCat("window must be in [run_length = ",
                     run_length,
                     ", ",
                     kMaxWindow,
                     "], got ",
                     window));
  }
  if (rule == AcceptanceRule::kRatio && window != run_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("window must equal run_length = ",
                     run_length,
                     " under the ratio rule, which runs in lock-step, got ",
                     window));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DraftPath> DraftPath::Open(std::vector<int32_t> tokens,
                                          int prompt_length,
                                          int run_length,
                                          int window,
                                          AcceptanceRule rule) {
  if (tokens.empty()) {
    return absl::InvalidArgumentError("tokens must not be empty");
  }
  if (prompt_length < 1 || prompt_length > static_cast<int>(tokens.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt_length must be in [1, ",
                     tokens.size(),
                     "], the number of tokens, got ",
                     prompt_length));
  }
  if (absl::Status status = CheckSettings(run_length, window, rule);
      !status.ok()) {
    return status;
  }
  return DraftPath(std::move(tokens), prompt_length, run_length, window, rule);
}

DraftPath::DraftPath(std::vector<int32_t> tokens,
                     int prompt_length,
                     int run_length,
                     int window,
                     AcceptanceRule rule)
    : path_(std::move(tokens)),
      rule_(rule),
      committed_length_(static_cast<int>(path_.size())),
      prompt_length_(prompt_length),
      run_length_(run_length),
      window_(window),
      sent_(committed_length_) {}

absl::Status DraftPath::OnCommit(int position,
                                 absl::Span<const int32_t> tokens) {
  if (position < 0 || position > committed_length_) {
    return absl::InternalError(absl::StrCat("commit at position ",
                                            position,
                                            " leaves a gap: ",
                                            committed_length_,
                                            " tokens are committed"));
  }
  const size_t known = std::min(
      tokens.size(), static_cast<size_t>(committed_length_ - position));
  for (size_t i = 0; i < known; ++i) {
    if (path_[static_cast<size_t>(position) + i] != tokens[i]) {
      return absl::InternalError(
          absl::StrCat("commit at position ",
                       position,
                       " contradicts an earlier one at position ",
                       static_cast<size_t>(position) + i));
    }
  }
  const absl::Span<const int32_t> added = tokens.subspan(known);
  if (added.empty()) {
    return absl::OkStatus();
  }
  const size_t begin = static_cast<size_t>(committed_length_);
  const size_t compared = std::min(added.size(), path_.size() - begin);
  committed_length_ += static_cast<int>(added.size());
  if (std::equal(added.begin(),
                 added.begin() + static_cast<std::ptrdiff_t>(compared),
                 path_.begin() + static_cast<std::ptrdiff_t>(begin))) {
    path_.insert(path_.end(),
                 added.begin() + static_cast<std::ptrdiff_t>(compared),
                 added.end());
    q_.erase(q_.begin(),
             q_.begin() +
                 static_cast<std::ptrdiff_t>(std::min(compared, q_.size())));
    sent_ = std::max(sent_, committed_length_);
  } else {
    // The path was wrong; nothing that was sent beyond it holds any longer.
    path_.resize(begin);
    path_.insert(path_.end(), added.begin(), added.end());
    q_.clear();
    sent_ = committed_length_;
    confidence_ = 0;
  }
  exhausted_ = false;
  if (sent_ <= committed_length_) {
    answer_due_ = true;
  }
  return absl::OkStatus();
}

absl::Status DraftPath::OnRewind(int position) {
  if (position < 0 || position > committed_length_) {
    return absl::InvalidArgumentError(
        absl::StrCat("rewind.position must be in [0, ",
                     committed_length_,
                     "], the committed length, got ",
                     position));
  }
  // Committed tokens are known to whoever asks, so none is proposed again.
  sent_ = committed_length_;
  confidence_ = 0;
  exhausted_ = false;
  answer_due_ = true;
  return absl::OkStatus();
}

absl::Status DraftPath::OnTune(std::optional<int> run_length,
                               std::optional<int> window) {
  const int new_run_length = run_length.value_or(run_length_);
  const int new_window = window.value_or(window_);
  if (absl::Status status = CheckSettings(new_run_length, new_window, rule_);
      !status.ok()) {
    return status;
  }
  run_length_ = new_run_length;
  window_ = new_window;
  exhausted_ = false;
  return absl::OkStatus();
}

DraftPath::Work DraftPath::NextWork() {
  Work work;
  const int limit = committed_length_ + window_;
  const int held = static_cast<int>(path_.size()) - sent_;
  if (held > 0) {
    const int size = std::min(held, run_length_);
    if (sent_ + size <= limit) {
      work.kind = Work::Kind::kSend;
      work.proposal.position = sent_;
      work.proposal.based_on = committed_length_;
      work.proposal.tokens.assign(path_.begin() + sent_,
                                  path_.begin() + sent_ + size);
      if (rule_ == AcceptanceRule::kRatio) {
        const auto first = q_.begin() + (sent_ - committed_length_);
        work.proposal.q.assign(first, first + size);
      }
      work.proposal.confidence = std::exchange(confidence_, 0.0f);
      sent_ += size;
      answer_due_ = false;
    }
    return work;
  }
  if (!exhausted_ && sent_ + run_length_ <= limit) {
    work.kind = Work::Kind::kDraft;
    work.max_tokens = run_length_;
    return work;
  }
  // Whoever waits for this drafter must hear that nothing will come.
  if (answer_due_) {
    work.kind = Work::Kind::kSend;
    work.proposal.position = committed_length_;
    work.proposal.based_on = committed_length_;
    answer_due_ = false;
  }
  return work;
}

void DraftPath::OnDrafted(DraftRun run) {
  const size_t size =
      std::min(run.tokens.size(), static_cast<size_t>(run_length_));
  path_.insert(path_.end(),
               run.tokens.begin(),
               run.tokens.begin() + static_cast<std::ptrdiff_t>(size));
  for (size_t i = 0; rule_ == AcceptanceRule::kRatio && i < size; ++i) {
    q_.push_back(i < run.q.size() ? std::move(run.q[i])
                                  : DraftDistribution{{run.tokens[i]}, {1.0f}});
  }
  exhausted_ = size < static_cast<size_t>(run_length_) && !run.more;
  confidence_ = run.confidence;
}

}  // namespace specwire
