// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace specwire {

// The tokens before a position: those of prompt and completion that are
// settled, then draft tokens that lead on to it. So row i of a verify pass is
// {log, draft.first(i)}, and sees what plain decoding would.
//
// Lifetime: a view; both spans must outlive it.
struct TokenHistory {
  absl::Span<const int32_t> settled;
  absl::Span<const int32_t> run;

  // The position whose token is to be chosen.
  int position() const { return static_cast<int>(settled.size() + run.size()); }
};

// What the pipeline must know of a sequence beside its sampling parameters.
struct SequenceContext {
  // Tokens of the prompt; what lies behind it is output.
  int prompt_length = 0;
  // Output tokens before which no token may end the sequence.
  int min_tokens = 0;
  // Tokens that end the sequence: stop tokens, and EOS unless it is ignored.
  std::vector<int32_t> end_token_ids;
};

}  // namespace specwire
