// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/draft_path.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace specwire {
namespace {

constexpr float kNoEstimate = -1;

absl::Status CheckMinSurvival(float min_survival, AcceptanceRule rule) {
  // A number that is none fails too.
  if (!(min_survival >= 0 && min_survival < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_survival must be in [0, 1), got ", min_survival));
  }
  if (rule == AcceptanceRule::kRatio && min_survival != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "min_survival must be 0 under the ratio rule, got ", min_survival));
  }
  return absl::OkStatus();
}

absl::Status CheckSettings(int run_length,
                           int window,
                           float min_survival,
                           AcceptanceRule rule) {
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
  return CheckMinSurvival(min_survival, rule);
}

// Makes chances, each given those before it, of survivals.
std::vector<float> ToChances(absl::Span<const float> survival) {
  std::vector<float> chances;
  float before = 1;
  for (const float value : survival) {
    chances.push_back(before > 0 ? std::clamp(value / before, 0.0f, 1.0f) : 0);
    before = value;
  }
  return chances;
}

// Drops the first `count` elements, or all.
template <typename T>
void DropFront(std::vector<T>* values, size_t count) {
  values->erase(values->begin(),
                values->begin() + static_cast<std::ptrdiff_t>(
                                      std::min(count, values->size())));
}

}  // namespace

absl::Status CheckRun(const DraftRun& run, const DraftLimits& limits) {
  if (run.tokens.size() > static_cast<size_t>(limits.max_tokens)) {
    return absl::InternalError(
        absl::StrCat("the drafter proposed ",
                     run.tokens.size(),
                     " tokens where it was asked for at most ",
                     limits.max_tokens));
  }
  if (!run.survival.empty() && run.survival.size() != run.tokens.size()) {
    return absl::InternalError(absl::StrCat("the drafter gave ",
                                            run.survival.size(),
                                            " survivals for ",
                                            run.tokens.size(),
                                            " tokens"));
  }
  if (!run.q.empty() && run.q.size() != run.tokens.size()) {
    return absl::InternalError(absl::StrCat("the drafter gave ",
                                            run.q.size(),
                                            " distributions for ",
                                            run.tokens.size(),
                                            " tokens"));
  }
  return absl::OkStatus();
}

void CutRun(float min_survival, DraftRun* run) {
  const auto cut = std::find_if(
      run->survival.begin(), run->survival.end(), [&](float survival) {
        return survival < min_survival;
      });
  if (cut == run->survival.end()) return;
  const auto size = static_cast<size_t>(cut - run->survival.begin());
  run->tokens.resize(size);
  run->survival.resize(size);
  if (run->q.size() > size) run->q.resize(size);
  run->more = false;
}

absl::StatusOr<DraftPath> DraftPath::Open(std::vector<int32_t> tokens,
                                          int prompt_length,
                                          int run_length,
                                          int window,
                                          AcceptanceRule rule,
                                          float min_survival) {
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
  if (absl::Status status =
          CheckSettings(run_length, window, min_survival, rule);
      !status.ok()) {
    return status;
  }
  return DraftPath(
      std::move(tokens), prompt_length, run_length, window, rule, min_survival);
}

DraftPath::DraftPath(std::vector<int32_t> tokens,
                     int prompt_length,
                     int run_length,
                     int window,
                     AcceptanceRule rule,
                     float min_survival)
    : path_(std::move(tokens)),
      rule_(rule),
      committed_length_(static_cast<int>(path_.size())),
      prompt_length_(prompt_length),
      run_length_(run_length),
      window_(window),
      min_survival_(min_survival),
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
    DropFront(&q_, compared);
    DropFront(&chances_, compared);
    sent_ = std::max(sent_, committed_length_);
  } else {
    // The path was wrong; nothing that was sent beyond it holds any longer.
    path_.resize(begin);
    path_.insert(path_.end(), added.begin(), added.end());
    q_.clear();
    chances_.clear();
    sent_ = committed_length_;
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
  exhausted_ = false;
  answer_due_ = true;
  return absl::OkStatus();
}

absl::Status DraftPath::OnTune(std::optional<int> run_length,
                               std::optional<int> window,
                               std::optional<float> min_survival) {
  const int new_run_length = run_length.value_or(run_length_);
  const int new_window = window.value_or(window_);
  const float new_min_survival = min_survival.value_or(min_survival_);
  if (absl::Status status =
          CheckSettings(new_run_length, new_window, new_min_survival, rule_);
      !status.ok()) {
    return status;
  }
  run_length_ = new_run_length;
  window_ = new_window;
  min_survival_ = new_min_survival;
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
      work.proposal.confidence = Survival(sent_, size);
      sent_ += size;
      answer_due_ = false;
    }
    return work;
  }
  if (!exhausted_ && sent_ + run_length_ <= limit) {
    work.kind = Work::Kind::kDraft;
    work.limits = {.max_tokens = run_length_, .min_survival = min_survival_};
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
  CutRun(min_survival_, &run);
  const size_t size =
      std::min(run.tokens.size(), static_cast<size_t>(run_length_));
  path_.insert(path_.end(),
               run.tokens.begin(),
               run.tokens.begin() + static_cast<std::ptrdiff_t>(size));
  for (size_t i = 0; rule_ == AcceptanceRule::kRatio && i < size; ++i) {
    q_.push_back(i < run.q.size() ? std::move(run.q[i])
                                  : DraftDistribution{{run.tokens[i]}, {1.0f}});
  }
  std::vector<float> chances = ToChances(run.survival);
  chances.resize(size, kNoEstimate);
  chances_.insert(chances_.end(), chances.begin(), chances.end());
  exhausted_ = size < static_cast<size_t>(run_length_) && !run.more;
}

std::vector<float> DraftPath::Chances(const Proposal& proposal) const {
  std::vector<float> chances;
  for (size_t i = 0; i < proposal.tokens.size(); ++i) {
    chances.push_back(
        chances_[static_cast<size_t>(proposal.position - committed_length_) +
                 i]);
    if (chances.back() == kNoEstimate) return {};
  }
  return chances;
}

float DraftPath::Survival(int position, int size) const {
  float survival = 1;
  for (int i = 0; i < size; ++i) {
    const float chance =
        chances_[static_cast<size_t>(position - committed_length_ + i)];
    if (chance == kNoEstimate) return 0;
    survival *= chance;
  }
  return survival;
}

}  // namespace specwire
