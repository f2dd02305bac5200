// SPDX-License-Identifier: Apache-2.0
#include "draft_node/model_sequence.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/round_up.h"
#include "common/base/status_macros.h"

namespace specwire::draft {
namespace {

int64_t BlocksFor(int64_t length, int64_t block_size) {
  return DivideUp(length, block_size);
}

size_t CommonLength(absl::Span<const int32_t> a, absl::Span<const int32_t> b) {
  const size_t size = std::min(a.size(), b.size());
  // The usual case, and far quicker than to look for a difference.
  if (std::equal(a.begin(), a.begin() + size, b.begin())) return size;
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + size, b.begin()).first - a.begin());
}

}  // namespace

ModelSequence::ModelSequence(Drafter* drafter,
                             Engine* engine,
                             const DraftSequenceParams& params,
                             std::unique_ptr<TokenChooser> chooser,
                             std::vector<ModelSequence*>* all)
    : drafter_(drafter),
      engine_(engine),
      rule_(params.rule),
      salt_(params.tenant_salt),
      chooser_(std::move(chooser)),
      all_(all) {
  all_->push_back(this);
}

ModelSequence::~ModelSequence() {
  all_->erase(std::find(all_->begin(), all_->end(), this));
}

absl::StatusOr<DraftRun> ModelSequence::Propose(absl::Span<const int32_t> path,
                                                int max_tokens) {
  DraftTask task = {.sequence = this, .path = path, .max_tokens = max_tokens};
  while (!task.result.has_value()) {
    drafter_->Propose(absl::MakeSpan(&task, 1));
  }
  return *std::move(task.result);
}

void ModelSequence::Begin(absl::Span<const int32_t> path,
                          int max_tokens,
                          int64_t pass) {
  last_pass_ = pass;
  const size_t common = CommonLength(text_, path);
  asked_end_ = path.size() + static_cast<size_t>(max_tokens);
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
  path_length_ = path.size();
  // The last token is computed anew in any case, for its logits.
  FitCache(goes_on ? text_.size() - 1 : std::min(common, path.size() - 1));
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
  SPECWIRE_ASSIGN_OR_RETURN(
      std::optional<DraftToken> chosen,
      chooser_->Choose(row, {.settled = path(), .run = run()}));
  if (!chosen.has_value()) return false;
  text_.push_back(chosen->token);
  tokens_.push_back(*std::move(chosen));
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
  double confidence = 1;
  for (DraftToken& token : tokens_) {
    confidence *= token.confidence;
    if (!token.q.token_ids.empty()) result.q.push_back(std::move(token.q));
  }
  if (chooser_->estimates() && !tokens.empty()) {
    result.confidence = static_cast<float>(confidence);
  }
  result.more = complete() && end_ < asked_end_;
  tokens_.clear();
  path_length_ = text_.size();
  return result;
}

}  // namespace specwire::draft
