// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/drafting/drafter.h"

namespace specwire {

// How far prompt lookup looks.
struct NgramOptions {
  // Longest and shortest suffix that is looked up, in tokens.
  int max_ngram = 8;
  int min_ngram = 2;
};

// Prompt lookup: finds the longest suffix of the path, of max_ngram down to
// min_ngram tokens, that occurs earlier in the path too, and proposes what
// followed it there; among equally long ones the most recent wins. Where what
// followed reaches the end of the path, it goes on with its own proposal, so a
// path that repeats itself is continued for as long as asked. No model, no
// torch: it serves any vocabulary.
//
// A sequence keeps an index of its path, at most some 40 bytes a token. A
// proposal costs a comparison with the path that was known, and a look at each
// earlier place that ends with the same min_ngram tokens, the latest first.
//
// Thread safety: any thread.
class NgramDrafter final : public Drafter {
 public:
  // INVALID_ARGUMENT naming the option unless 1 <= min_ngram <= max_ngram.
  static absl::StatusOr<std::unique_ptr<NgramDrafter>> Create(
      const NgramOptions& options);

  const std::string& name() const override { return name_; }
  const std::string& vocabulary_fingerprint() const override { return none_; }
  const std::string& model_digest() const override { return none_; }
  int max_model_len() const override { return 0; }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& params) override;

 private:
  explicit NgramDrafter(const NgramOptions& options) : options_(options) {}

  const NgramOptions options_;
  const std::string name_ = "ngram";
  const std::string none_;
};

}  // namespace specwire
