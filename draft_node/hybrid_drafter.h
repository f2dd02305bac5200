// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/drafting/suffix.h"

namespace specwire::draft {

// What a drafter's runs earn, from those that have been seen, the latest
// counting most: how often there is one, and the chance of each of its tokens
// to be accepted, given those before it.
class RunExpectation {
 public:
  // It was asked, and had something to say or not.
  void OnAnswer(bool empty);
  // Accepted tokens of a run, and whether one was rejected behind them.
  void OnJudged(int num_accepted, bool rejected);
  // Accepted tokens to expect of being asked for so many.
  double Tokens(int max_tokens) const;

 private:
  // What is known beforehand counts as much as a few runs: about what a small
  // draft model earns.
  double accepted_ = 2;
  double judged_ = 5;
  double answered_ = 5;
  double asked_ = 5;
};

// Lookup and a model together: each run comes from whichever may be expected to
// have more tokens accepted, and from the other one if that has none. Of a
// lookup that is the sum of its tokens' survivals; of the model what it has
// earned in the sequence so far, so that it need not be run to be compared.
//
// The choice follows from the path and from what was seen of tokens before its
// end, never from a token that was drawn beyond it, as the ratio rule wants.
//
// A Propose answers what lookup answers, and leaves the rest to the next one;
// else it is a pass of the model for all tasks. So no lookup waits for a pass.
//
// Thread safety: see Drafter.
class HybridDrafter final : public Drafter {
 public:
  // REQUIRES: neither is null.
  HybridDrafter(std::unique_ptr<SuffixDrafter> lookup,
                std::unique_ptr<Drafter> model);

  const std::string& name() const override { return name_; }
  const std::string& vocabulary_fingerprint() const override {
    return model_->vocabulary_fingerprint();
  }
  const std::string& model_digest() const override {
    return model_->model_digest();
  }
  // Beyond the model's, lookup goes on.
  int max_model_len() const override { return 0; }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& params) override;
  int max_batch() const override { return model_->max_batch(); }
  DraftPass Propose(absl::Span<DraftTask> tasks) override;
  int64_t kv_blocks_total() const override { return model_->kv_blocks_total(); }
  int64_t kv_blocks_used() const override { return model_->kv_blocks_used(); }
  int64_t kv_blocks_cached() const override {
    return model_->kv_blocks_cached();
  }
  int64_t progress() const override { return model_->progress(); }

 private:
  class Sequence;

  DraftPass RunModel(absl::Span<DraftTask> tasks);

  const std::string name_ = "hybrid";
  // Sequences hold on to both.
  const std::unique_ptr<SuffixDrafter> lookup_;
  const std::unique_ptr<Drafter> model_;
};

}  // namespace specwire::draft
