// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/model/engine.h"
#include "draft_node/token_chooser.h"

namespace specwire::draft {

// One sequence of a model drafter, step by step: the path, the run that is
// being made behind it, and the model's cache of both. Each time it is asked it
// takes up the path that it is given: what that has in common with what was
// there before is kept, of the cache and of the run, the rest is rolled back.
//
// Use: Begin; then, until complete() or GoesOn() is false, compute Rows() and
// hand the last row's logits to Take(); then End().
//
// Thread safety: the engine's thread only, destructor included.
// Lifetime: must not outlive drafter, engine and `all`.
class ModelSequence final : public DraftSequence {
 public:
  // Enters itself into `all`, in the order of creation, until it ends.
  ModelSequence(Drafter* drafter,
                Engine* engine,
                const DraftSequenceParams& params,
                std::unique_ptr<TokenChooser> chooser,
                std::vector<ModelSequence*>* all);
  ~ModelSequence() override;
  ModelSequence(const ModelSequence&) = delete;
  ModelSequence& operator=(const ModelSequence&) = delete;

  // Alone, to the run's end.
  absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                   int max_tokens) override;

  // Takes up the path in the drafter's pass of that number. A run under way
  // goes on if the path has not left it, and ends where it was to end. Takes
  // over what the prefix cache has if nothing is cached yet.
  // REQUIRES: path is not empty, max_tokens >= 1.
  void Begin(absl::Span<const int32_t> path, int max_tokens, int64_t pass);

  // Path and run, in tokens.
  int length() const { return static_cast<int>(text_.size()); }
  // Of the run so far.
  int run_length() const { return static_cast<int>(tokens_.size()); }
  // Whether the run has all of its tokens.
  bool complete() const { return text_.size() >= end_; }
  // Tokens to compute before the next one can be chosen. REQUIRES: since Begin.
  int behind() const;
  // Blocks that these need.
  int64_t blocks_needed() const;
  // Blocks held.
  int64_t num_blocks() const;
  int64_t last_pass() const { return last_pass_; }

  // The next `count` tokens' part of a pass; a row of logits, or what there is
  // of it in `best`, is wanted if they are all there are.
  // REQUIRES: since Begin, 1 <= count <= behind().
  ForwardRun Rows(int count, int32_t* best);
  // Takes what the model says after path and run: one more token, or the run
  // ends (false). REQUIRES: behind() tokens were computed.
  absl::StatusOr<bool> Take(const LogitRow& row);

  // Hands over the run.
  DraftRun End();
  // Frees what is cached; it is computed again when it is needed.
  void DropCache() { kv_.reset(); }

 private:
  absl::Span<const int32_t> path() const {
    return absl::MakeConstSpan(text_).first(path_length_);
  }
  absl::Span<const int32_t> run() const {
    return absl::MakeConstSpan(text_).subspan(path_length_);
  }
  // Makes the cache hold nothing but the first `length` tokens at most.
  void FitCache(size_t length);

  Drafter* const drafter_;
  Engine* const engine_;
  const AcceptanceRule rule_;
  const std::string salt_;
  const std::unique_ptr<TokenChooser> chooser_;
  std::vector<ModelSequence*>* const all_;

  // The first kv_->length() tokens of text_ are cached; null: none.
  std::unique_ptr<KvSequence> kv_;
  // Path and run.
  std::vector<int32_t> text_;
  size_t path_length_ = 0;
  // What is known of the run's tokens.
  std::vector<DraftToken> tokens_;
  // Length of text_ at which the run ends, and where it was asked to.
  size_t end_ = 0;
  size_t asked_end_ = 0;
  int64_t last_pass_ = 0;
};

}  // namespace specwire::draft
