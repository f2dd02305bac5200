// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "common/drafting/drafter.h"

namespace specwire {

// Proposes tokens drawn evenly from the target's vocabulary, nearly always
// wrong: for tests, and to measure what useless drafts cost. The same path and
// seed give the same tokens. Proposes nothing where it is not told the
// vocabulary's size.
//
// Thread safety: any thread.
class RandomDrafter final : public Drafter {
 public:
  const std::string& name() const override { return name_; }
  const std::string& vocabulary_fingerprint() const override { return none_; }
  const std::string& model_digest() const override { return none_; }
  int max_model_len() const override { return 0; }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& params) override;

 private:
  const std::string name_ = "random";
  const std::string none_;
};

}  // namespace specwire
