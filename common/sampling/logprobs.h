// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/sampling/row_maxima.h"

namespace specwire {

// Most candidates that a request may ask for at each position.
inline constexpr int kMaxLogprobs = 20;

// A token and the natural logarithm of its probability.
struct TokenLogprob {
  int32_t token_id = 0;
  double logprob = 0;
};

// Log-probabilities at one position.
struct PositionLogprobs {
  // The token that stands there.
  TokenLogprob chosen;
  // The most likely tokens, best first, lower id first on a tie. Whether the
  // chosen one is among them changes nothing.
  std::vector<TokenLogprob> top;
};

// Reads log-probabilities off the target's raw logits: those before bias,
// penalties, temperature and cuts, as in vLLM. The same logits give the same
// bits on every machine (softmax.h). Logits that are no numbers, or -infinity,
// have log-probability -infinity and are never among the top; those of
// +infinity share all the probability.
//
// Thread safety: one thread at a time. Memory is kept from call to call.
class LogprobReader {
 public:
  // Fills `out` with the log-probability of `token` and of the `top` most
  // likely tokens (fewer if fewer have any probability). REQUIRES: token is an
  // index of logits, [vocab_size] f32; 0 <= top <= kMaxLogprobs.
  void Read(absl::Span<const float> logits,
            int32_t token,
            int top,
            PositionLogprobs* out);

 private:
  void FindTop(absl::Span<const float> logits, size_t top);

  RowMaxima maxima_;
  std::vector<int32_t> top_ids_;
};

}  // namespace specwire
