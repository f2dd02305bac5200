// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/engine.h"

namespace specwire::draft {

// A model's cache for one sequence, kept in step with whatever path it is asked
// about: what the cache has in common with the path is kept, the rest is rolled
// back and computed.
//
// Thread safety: the engine's thread only, destructor included.
// Lifetime: must not outlive the engine.
class ModelPath {
 public:
  explicit ModelPath(Engine* engine);

  // Tokens that can follow `path` before context or cache are full, 0 to
  // kMaxProposalTokens. Rolls the cache back to what fits `path`.
  // REQUIRES: path is not empty.
  int Room(absl::Span<const int32_t> path);

  // Logits of the token after `path`, [vocab_size] f32, valid until the next
  // call. REQUIRES: Room(path) >= 1.
  absl::StatusOr<absl::Span<const float>> LogitsAfter(
      absl::Span<const int32_t> path);
  // The same after one more token behind what was asked about last.
  absl::StatusOr<absl::Span<const float>> LogitsAfterNext(int32_t token);

 private:
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const int32_t> tokens, int num_logits);

  Engine* const engine_;
  const std::unique_ptr<KvSequence> kv_;
  // Tokens whose keys and values are cached.
  std::vector<int32_t> cached_;
};

}  // namespace specwire::draft
