// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

// How a text is scored: each token's log-probability given tokens before it,
// and the perplexity of all. See "Perplexity of fixed-length models" in the
// documentation of Hugging Face's transformers.

namespace specwire {

// Tokens [begin, end) are computed by themselves; those of them from
// first_target on are scored.
struct ScoreWindow {
  int begin = 0;
  int end = 0;
  int first_target = 0;

  friend bool operator==(const ScoreWindow&, const ScoreWindow&) = default;
};

// Windows of `window` tokens (the last may be shorter) that begin `stride`
// tokens apart and end at the text's end. Each scores what none before it has
// scored, save its own first token, which nothing precedes; so with stride <
// window all tokens but the text's first are scored, each once. Windows without
// a target are left out. REQUIRES: num_tokens >= 0, window >= 1, 1 <= stride <=
// window.
std::vector<ScoreWindow> PlanScoreWindows(int num_tokens,
                                          int window,
                                          int stride);

// Tokens that these windows compute together, without making them.
int64_t CountWindowTokens(int num_tokens, int window, int stride);

// exp(mean negative log-likelihood). The sum is taken in the order of Add.
//
// Thread safety: one thread at a time.
class PerplexityMeter {
 public:
  // A token's log-probability; -infinity makes the perplexity infinite.
  void Add(double logprob);

  int num_scored() const { return num_scored_; }
  // REQUIRES: num_scored() > 0.
  double perplexity() const;

 private:
  double sum_ = 0;
  int num_scored_ = 0;
};

}  // namespace specwire
