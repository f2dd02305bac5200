// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/perplexity.h"

#include <algorithm>

#include "common/kernels/maths.h"

namespace specwire {
namespace {

// Calls take(begin, end) for each window.
template <class Take>
void ForEachWindow(int num_tokens, int window, int stride, const Take& take) {
  for (int64_t begin = 0; begin < num_tokens; begin += stride) {
    const int64_t end = std::min<int64_t>(begin + window, num_tokens);
    take(static_cast<int>(begin), static_cast<int>(end));
    if (end == num_tokens) break;
  }
}

}  // namespace

std::vector<ScoreWindow> PlanScoreWindows(int num_tokens,
                                          int window,
                                          int stride) {
  std::vector<ScoreWindow> windows;
  int scored_until = 0;
  ForEachWindow(num_tokens, window, stride, [&](int begin, int end) {
    const int first = std::max(scored_until, begin + 1);
    if (first < end) windows.push_back({begin, end, first});
    scored_until = end;
  });
  return windows;
}

int64_t CountWindowTokens(int num_tokens, int window, int stride) {
  int64_t count = 0;
  ForEachWindow(num_tokens, window, stride, [&](int begin, int end) {
    count += end - begin;
  });
  return count;
}

void PerplexityMeter::Add(double logprob) {
  sum_ -= logprob;
  ++num_scored_;
}

double PerplexityMeter::perplexity() const { return Exp(sum_ / num_scored_); }

}  // namespace specwire
