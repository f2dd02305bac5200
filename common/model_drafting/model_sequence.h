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
#include "common/model_drafting/acceptance_estimate.h"
#include "common/model_drafting/token_chooser.h"

namespace specwire {

// One sequence of a model drafter, step by step: the path, the run that is
// being made behind it, and the model's cache of both. Each time it is asked it
// takes up the path that it is given: what that has in common with what was
// there before is kept, of the cache and of the run, the rest is rolled back.
// What has become of its earlier tokens shows in the path, too, and goes into
// the estimate of what becomes of the next ones.
//
// Use: Begin; then, until complete() or GoesOn() is false, compute Rows() and
// hand the last row's logits to Take(); then End().
//
// Thread safety: the engine's thread only, destructor included.
// Lifetime: must not outlive drafter, engine and `all`.
class ModelSequence final : public DraftSequence {
 public:
  // Enters itself into `all`, in the order of creation, until it ends. Without
  // `estimate` it says nothing of its tokens' survival.
  ModelSequence(Drafter* drafter,
                Engine* engine,
                const DraftSequenceParams& params,
                std::unique_ptr<TokenChooser> chooser,
                AcceptanceEstimate* estimate,
                std::vector<ModelSequence*>* all);
  ~ModelSequence() override;
  ModelSequence(const ModelSequence&) = delete;
  ModelSequence& operator=(const ModelSequence&) = delete;

  // Alone, to the run's end.
  absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                   const DraftLimits& limits) override;

  // Takes up the path in the drafter's pass of that number. A run under way
  // goes on if the path has not left it, and ends where it was to end. Takes
  // over what the prefix cache has if nothing is cached yet.
  // REQUIRES: path is not empty, limits.max_tokens >= 1.
  void Begin(absl::Span<const int32_t> path,
             const DraftLimits& limits,
             int64_t pass);

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
  // Takes what the model says after path and run: one more token. Whether the
  // run goes on; it ends before a token that survives too seldom. REQUIRES:
  // behind() tokens were computed.
  absl::StatusOr<bool> Take(const LogitRow& row);

  // Hands over the run.
  DraftRun End();
  // Frees what is cached; it is computed again when it is needed.
  void DropCache() { kv_.reset(); }

 private:
  // A token of the run, and the chance that it is accepted if all before it
  // are.
  struct RunToken {
    DraftToken draft;
    double chance = 1;
  };
  // A token that was chosen, whether it was proposed or not, until it shows
  // what the target chose in its place.
  struct Guess {
    size_t position = 0;
    int32_t token = 0;
    double probability = 0;
  };

  absl::Span<const int32_t> path() const {
    return absl::MakeConstSpan(text_).first(path_length_);
  }
  absl::Span<const int32_t> run() const {
    return absl::MakeConstSpan(text_).subspan(path_length_);
  }
  // Looks up in the path, which has `common` tokens in common with text_, what
  // became of the guesses.
  void JudgeGuesses(absl::Span<const int32_t> path, size_t common);
  void DropGuessesFrom(size_t position);
  // Makes the cache hold nothing but the first `length` tokens at most.
  void FitCache(size_t length);

  Drafter* const drafter_;
  Engine* const engine_;
  const AcceptanceRule rule_;
  const std::string salt_;
  const std::unique_ptr<TokenChooser> chooser_;
  // Null: no survival.
  AcceptanceEstimate* const estimate_;
  std::vector<ModelSequence*>* const all_;

  // The first kv_->length() tokens of text_ are cached; null: none.
  std::unique_ptr<KvSequence> kv_;
  // Path and run.
  std::vector<int32_t> text_;
  size_t path_length_ = 0;
  // What is known of the run's tokens.
  std::vector<RunToken> tokens_;
  // By position, each after path and run as they were up to it.
  std::vector<Guess> guesses_;
  // Length of text_ at which the run ends, and where it was asked to.
  size_t end_ = 0;
  size_t asked_end_ = 0;
  double min_survival_ = 0;
  int64_t last_pass_ = 0;
};

}  // namespace specwire
