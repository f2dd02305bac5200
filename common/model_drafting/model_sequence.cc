// SPDX-License-Identifier: Apache-2.0
#include "common/model_drafting/model_sequence.h"

#include <algorithm>
#include <utility>

#include "common/base/common_length.h"
#include "common/base/round_up.h"
#include "common/base/status_macros.h"

namespace specwire {
namespace {

// Tokens of a path that lie so far before its end count as the target's own:
// few drafters work further ahead.
constexpr size_t kSettledBehind = 32;

int64_t BlocksFor(int64_t length, int64_t block_size) {
  return DivideUp(length, block_size);
}

}  // namespace

ModelSequence::ModelSequence(Drafter* drafter,
                             Engine* engine,
                             const DraftSequenceParams& params,
                             std::unique_ptr<TokenChooser> chooser,
                             AcceptanceEstimate* estimate,
                             std::vector<ModelSequence*>* all)
    : drafter_(drafter),
      engine_(engine),
      rule_(params.rule),
      salt_(params.tenant_salt),
      chooser_(std::move(chooser)),
      estimate_(estimate),
      all_(all) {
  all_->push_back(this);
}

ModelSequence::~ModelSequence() {
  all_->erase(std::find(all_->begin(), all_->end(), this));
}

absl::StatusOr<DraftRun> ModelSequence::Propose(absl::Span<const int32_t> path,
                                                const DraftLimits& limits) {
  DraftTask task = {.sequence = this, .path = path, .limits = limits};
  while (!task.result.has_value()) {
    drafter_->Propose(absl::MakeSpan(&task, 1));
  }
  return *std::move(task.result);
}

void ModelSequence::Begin(absl::Span<const int32_t> path,
                          const DraftLimits& limits,
                          int64_t pass) {
  last_pass_ = pass;
  const size_t common = CommonLength(text_, path);
  JudgeGuesses(path, common);
  asked_end_ = path.size() + static_cast<size_t>(limits.max_tokens);
  min_survival_ = static_cast<double>(limits.min_survival);
  const bool goes_on =
      common == path.size() && common >= path_length_ && common < text_.size();
  if (goes_on) {
    const size_t settled = common - path_length_;
    tokens_.erase(tokens_.begin(),
                  tokens_.begin() + static_cast<std::ptrdiff_t>(settled));
    // Were each commit to put off the end, a run might never be sent. Under the
    // ratio rule a run's length must not depend on when a commit arrives.
    const bool keeps_end = settled > 0 && rule_ == AcceptanceRule::kCoupled;
    end_ = keeps_end ? std::min(end_, asked_end_) : asked_end_;
    text_.resize(std::min(text_.size(), end_));
    tokens_.resize(text_.size() - path.size());
  } else {
    text_.resize(common);
    text_.insert(text_.end(),
                 path.begin() + static_cast<std::ptrdiff_t>(common),
                 path.end());
    tokens_.clear();
    end_ = asked_end_;
  }
  DropGuessesFrom(text_.size());
  path_length_ = path.size();
  // The last token is computed anew in any case, for its logits.
  FitCache(goes_on ? text_.size() - 1 : std::min(common, path.size() - 1));
}

void ModelSequence::JudgeGuesses(absl::Span<const int32_t> path,
                                 size_t common) {
  // Where path and text differ the target has spoken: on all up to there.
  const bool differ = common < std::min(text_.size(), path.size());
  size_t settled = 0;
  if (differ) {
    settled = common + 1;
  } else if (path.size() > kSettledBehind) {
    settled = path.size() - kSettledBehind;
  }
  auto guess = guesses_.begin();
  for (; guess != guesses_.end() && guess->position < settled; ++guess) {
    estimate_->Observe(guess->probability,
                       path[guess->position] == guess->token);
  }
  guesses_.erase(guesses_.begin(), guess);
  // The others are guesses behind what was wrong.
  if (differ) guesses_.clear();
}

void ModelSequence::DropGuessesFrom(size_t position) {
  while (!guesses_.empty() && guesses_.back().position >= position) {
    guesses_.pop_back();
  }
}

void ModelSequence::FitCache(size_t length) {
  if (kv_ == nullptr) {
    kv_ = engine_->NewSequence();
    kv_->ReusePrefix(salt_, text_);
  } else if (static_cast<size_t>(kv_->length()) > length) {
    kv_->Truncate(static_cast<int>(length));
  }
}

int ModelSequence::behind() const { return length() - kv_->length(); }

int64_t ModelSequence::blocks_needed() const {
  return BlocksFor(length(), engine_->kv_block_size()) - num_blocks();
}

int64_t ModelSequence::num_blocks() const {
  return kv_ == nullptr ? 0
                        : BlocksFor(kv_->length(), engine_->kv_block_size());
}

ForwardRun ModelSequence::Rows(int count, int32_t* best) {
  ForwardRun rows = {
      .kv = kv_.get(),
      .tokens = absl::MakeConstSpan(text_).subspan(
          static_cast<size_t>(kv_->length()), static_cast<size_t>(count)),
      .num_logits = count == behind() ? 1 : 0};
  if (rows.num_logits == 1 && chooser_->NeedsBestOnly(length())) {
    rows.best = absl::MakeSpan(best, 1);
  }
  return rows;
}

absl::StatusOr<bool> ModelSequence::Take(const LogitRow& row) {
  RunToken next;
  SPECWIRE_ASSIGN_OR_RETURN(
      next.draft, chooser_->Choose(row, {.settled = path(), .run = run()}));
  if (estimate_ != nullptr) {
    DropGuessesFrom(text_.size());
    guesses_.push_back({.position = text_.size(),
                        .token = next.draft.token,
                        .probability = next.draft.probability});
    next.chance = estimate_->Chance(next.draft.probability);
    double survival = next.chance;
    for (const RunToken& token : tokens_) survival *= token.chance;
    if (survival < min_survival_) return false;
  }
  text_.push_back(next.draft.token);
  tokens_.push_back(std::move(next));
  while (chooser_->repeats() && !complete()) {
    text_.push_back(text_.back());
    tokens_.push_back(tokens_.back());
  }
  return !complete();
}

DraftRun ModelSequence::End() {
  DraftRun result;
  const absl::Span<const int32_t> tokens = run();
  result.tokens.assign(tokens.begin(), tokens.end());
  double survival = 1;
  for (auto& [draft, chance] : tokens_) {
    survival *= chance;
    if (estimate_ != nullptr) {
      result.survival.push_back(static_cast<float>(survival));
    }
    if (!draft.q.token_ids.empty()) result.q.push_back(std::move(draft.q));
  }
  result.more = complete() && end_ < asked_end_;
  tokens_.clear();
  path_length_ = text_.size();
  return result;
}

}  // namespace specwire
