// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace specwire {

class GgufFile;

// What a file says that is a draft model: a small model made for one target. It
// has no tokenizer but the fingerprint of the target's vocabulary, whose ids it
// speaks, and often a head for the frequent tokens only. The rest is its card.
//
//   specwire.draft.vocabulary_fingerprint  string; what makes it a draft model
//   specwire.draft.head_token_ids          array of integers; optional
//   llama.vocab_size                       the target's tokens
//   general.name, general.description, specwire.draft.target, .target_digest,
//   .training_tokens, .training_steps, .data    optional
struct DraftModelInfo {
  // Tokenizer::fingerprint of the target's.
  std::string vocabulary_fingerprint;
  // Tokens in the target's vocabulary.
  int vocab_size = 0;
  // Row i of the head is that of token head_token_ids[i]; ascending. No other
  // token has any probability. Empty: the head has a row for every token.
  std::vector<int32_t> head_token_ids;

  // For people.
  std::string name;
  std::string description;
  std::string target;
  std::string target_digest;
  int64_t training_tokens = 0;
  int64_t training_steps = 0;
  // What it was trained on.
  std::string data;
};

// Nothing if the file is no draft model. INVALID_ARGUMENT naming the key if
// what it says is no fingerprint, or if head tokens do not ascend within the
// vocabulary.
absl::StatusOr<std::optional<DraftModelInfo>> ReadDraftModelInfo(
    const GgufFile& file);

}  // namespace specwire
