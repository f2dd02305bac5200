// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/drafting/drafter.h"
#include "common/model/engine.h"

namespace specwire::draft {

// A drafter that is always right about greedy text: the target's own model,
// decoded greedily. As dear as the target, so for tests and measurements only.
//
// Where it has no room, in its context or its KV cache, it proposes fewer
// tokens or none.
//
// Thread safety: see Drafter.
class OracleDrafter final : public Drafter {
 public:
  // INVALID_ARGUMENT if the engine's tokenizer is not one that we implement.
  static absl::StatusOr<std::unique_ptr<OracleDrafter>> Create(
      std::unique_ptr<Engine> engine);

  const std::string& name() const override { return name_; }
  const std::string& vocabulary_fingerprint() const override {
    return vocabulary_fingerprint_;
  }
  const std::string& model_digest() const override {
    return engine_->info().model_digest;
  }
  int max_model_len() const override { return engine_->info().max_model_len; }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& params) override;
  int64_t kv_blocks_total() const override {
    return engine_->kv_blocks_total();
  }
  int64_t kv_blocks_used() const override { return engine_->kv_blocks_used(); }

 private:
  OracleDrafter(std::unique_ptr<Engine> engine, std::string fingerprint);

  const std::string name_ = "oracle";
  const std::unique_ptr<Engine> engine_;
  const std::string vocabulary_fingerprint_;
};

}  // namespace specwire::draft
