// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/drafting/drafter.h"
#include "common/drafting/suffix_estimates.h"
#include "common/drafting/suffix_store.h"
#include "common/drafting/suffix_trie.h"

namespace specwire {

class SuffixSequence;

struct SuffixOptions {
  // Most tokens of past output that are kept, of all tenants together; 0 keeps
  // none.
  int64_t max_store_tokens = 1 << 17;
  // A run ends before the first token that survives less likely than this, in
  // [0, 1), even where it may be longer: not even a free draft is worth a row.
  float min_survival = 0.01f;
};

// Lookup with counts: looks for what the path ends with, in the path itself and
// in what earlier sequences of the same tenant generated, and proposes what
// most often came next. Each token's chance is estimated from how often
// proposals with as long a match, as frequent a continuation and as little
// dissent have been right before, so a run goes as far as it is worth. No
// model, nothing random, no torch: it serves any vocabulary.
//
// Memory: some 200 bytes for each token of an open sequence and for each token
// that is kept, at most about 400.
//
// Thread safety: any thread, NewSequence and the sequences included; a sequence
// is used by one thread at a time. What they share is behind a mutex.
class SuffixDrafter final : public Drafter {
 public:
  // INVALID_ARGUMENT naming the option if it is out of range.
  static absl::StatusOr<std::unique_ptr<SuffixDrafter>> Create(
      const SuffixOptions& options);

  const std::string& name() const override { return name_; }
  const std::string& vocabulary_fingerprint() const override { return none_; }
  const std::string& model_digest() const override { return none_; }
  int max_model_len() const override { return 0; }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& params) override;
  // The same, for who mixes its proposals with others.
  std::unique_ptr<SuffixSequence> NewSuffixSequence(
      const DraftSequenceParams& params);

  // Tokens of past output that are kept.
  int64_t num_store_tokens() const;

 private:
  friend class SuffixSequence;

  explicit SuffixDrafter(const SuffixOptions& options)
      : options_(options),
        store_(static_cast<size_t>(options.max_store_tokens)) {}

  const SuffixOptions options_;
  const std::string name_ = "suffix";
  const std::string none_;
  mutable Mutex mutex_;
  SuffixStore store_ ABSL_GUARDED_BY(mutex_);
  SuffixEstimates estimates_ ABSL_GUARDED_BY(mutex_);
};

// A sequence of a SuffixDrafter. Only tokens that must be the target's own are
// counted: those that nobody proposed, and what lies before them or too far
// back to be open. A tail that was proposed is only followed.
//
// Under the ratio rule it is by itself: what others with the same seed drew at
// a position was drawn by the same noise, and no proposal may depend on that.
//
// Thread safety: one thread at a time.
// Lifetime: must not outlive the drafter, which keeps what it generated when it
// ends.
class SuffixSequence final : public DraftSequence {
 public:
  // Longest tail that is only followed.
  static constexpr size_t kMaxTail = 256;

  SuffixSequence(SuffixDrafter* drafter, const DraftSequenceParams& params);
  ~SuffixSequence() override;

  absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                   const DraftLimits& limits) override;

  // The same without proposing it: the path need not go on with it.
  DraftRun Look(absl::Span<const int32_t> path, const DraftLimits& limits);
  // These are proposed after `path`, whoever found them.
  void Expect(absl::Span<const int32_t> path, absl::Span<const int32_t> tokens);
  // The path as it was last given, and what is expected behind it.
  absl::Span<const int32_t> text() const { return text_; }
  // How much of that is known to be the target's own.
  size_t settled() const { return settled_; }

 private:
  // Where a text that ends at token `end` stands in a tenant's store.
  struct StorePlaces {
    int64_t version = -1;
    size_t end = 0;
    SuffixTrie::Place newer;
    SuffixTrie::Place older;
  };
  // Where it stands everywhere.
  struct Places {
    SuffixTrie::Place own;
    StorePlaces store;
  };

  // Takes up the path; returns the length of what is now known to be settled.
  size_t TakeUp(absl::Span<const int32_t> path);
  // Counts the text up to `end`, learning from the last few tokens of it.
  void Settle(size_t end);
  // The best match of each place, of the sequence itself first.
  template <typename F>
  void ForEachMatch(const Places& places,
                    const SuffixStore::Tenant* tenant,
                    F visit) const;
  // Where others' output is; null: there is none.
  const SuffixStore::Tenant* FindTenant() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drafter_->mutex_);
  // Those that apply to it.
  SuffixEstimates* estimates() ABSL_EXCLUSIVE_LOCKS_REQUIRED(drafter_->mutex_) {
    return alone_ ? &own_estimates_ : &drafter_->estimates_;
  }
  void Learn(const SuffixStore::Tenant* tenant, int32_t token)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drafter_->mutex_);
  // Brings `places` to the text's first `end` tokens.
  void FindInStore(const SuffixStore::Tenant* tenant,
                   size_t end,
                   StorePlaces* places) const;
  // The best guess, and its chance.
  struct Guess {
    int32_t token = 0;
    float chance = 0;
  };
  std::optional<Guess> BestGuess(const Places& places,
                                 const SuffixStore::Tenant* tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drafter_->mutex_);

  SuffixDrafter* const drafter_;
  const std::string salt_;
  const size_t prompt_length_;
  const bool alone_;
  SuffixEstimates own_estimates_;
  SuffixEstimates::Sequence learnt_;

  // The path, then what was proposed beyond it.
  std::vector<int32_t> text_;
  // The first so many are counted in trie_.
  size_t settled_ = 0;
  SuffixTrie trie_;
  // At settled_, in trie_ and, if its end says so, in the store.
  Places places_;
};

}  // namespace specwire
