// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/logprobs.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "common/sampling/row_kernels.h"
#include "common/sampling/softmax.h"

namespace specwire {

void LogprobReader::Read(absl::Span<const float> logits,
                         int32_t token,
                         int top,
                         PositionLogprobs* out) {
  maxima_.Compute(logits);
  const LogSum sum = LogSumOfRow(logits, maxima_.largest());
  const auto logprob = [&](int32_t id) {
    return LogProbability(logits[static_cast<size_t>(id)], sum);
  };
  out->chosen = {token, logprob(token)};
  out->top.clear();
  if (top == 0) return;
  FindTop(logits, static_cast<size_t>(top));
  for (const int32_t id : top_ids_) {
    if (logprob(id) == -std::numeric_limits<double>::infinity()) break;
    out->top.push_back({id, logprob(id)});
  }
}

void LogprobReader::FindTop(absl::Span<const float> logits, size_t top) {
  const float least = maxima_.LowerBoundOfKth(static_cast<int>(top));
  top_ids_.clear();
  const absl::Span<const float> groups = maxima_.groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g] < least) continue;
    const size_t end = std::min((g + 1) * kGroupTokens, logits.size());
    for (size_t i = g * kGroupTokens; i < end; ++i) {
      if (logits[i] >= least) top_ids_.push_back(static_cast<int32_t>(i));
    }
  }
  const size_t count = std::min(top, top_ids_.size());
  std::partial_sort(top_ids_.begin(),
                    top_ids_.begin() + static_cast<std::ptrdiff_t>(count),
                    top_ids_.end(),
                    [logits](int32_t a, int32_t b) {
                      const float logit_a = logits[static_cast<size_t>(a)];
                      const float logit_b = logits[static_cast<size_t>(b)];
                      return logit_a != logit_b ? logit_a > logit_b : a < b;
                    });
  top_ids_.resize(count);
}

}  // namespace specwire
