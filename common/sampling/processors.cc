// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/processors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace specwire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rounds to the nearest float that is finite, if the value is.
float ToFloat(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  if (!std::isfinite(value)) return static_cast<float>(value);
  return static_cast<float>(std::clamp(value, -kLargest, kLargest));
}

}  // namespace

LogitProcessors::LogitProcessors(const SamplingParams& params,
                                 SequenceContext context)
    : logit_bias_(params.logit_bias),
      repetition_penalty_(static_cast<double>(params.repetition_penalty)),
      frequency_penalty_(static_cast<double>(params.frequency_penalty)),
      presence_penalty_(static_cast<double>(params.presence_penalty)),
      penalties_on_(params.repetition_penalty != 1 ||
                    params.frequency_penalty != 0 ||
                    params.presence_penalty != 0),
      end_token_ids_(std::move(context.end_token_ids)),
      first_end_(int64_t{context.prompt_length} + context.min_tokens),
      counts_(context.prompt_length) {}

bool LogitProcessors::MasksAt(int position) const {
  return position < first_end_ && !end_token_ids_.empty();
}

bool LogitProcessors::ActiveAt(int position) const {
  return penalties_on_ || !logit_bias_.empty() || MasksAt(position);
}

absl::Span<const float> LogitProcessors::Apply(absl::Span<const float> logits,
                                               const TokenHistory& history) {
  const int position = history.position();
  if (!ActiveAt(position)) return logits;
  row_.assign(logits.begin(), logits.end());
  const auto in_row = [&](int32_t token_id) {
    return token_id >= 0 && static_cast<size_t>(token_id) < row_.size();
  };
  for (const LogitBias& entry : logit_bias_) {
    if (!in_row(entry.token_id)) continue;
    float& logit = row_[static_cast<size_t>(entry.token_id)];
    logit =
        ToFloat(static_cast<double>(logit) + static_cast<double>(entry.bias));
  }
  if (MasksAt(position)) {
    for (const int32_t token_id : end_token_ids_) {
      if (in_row(token_id)) row_[static_cast<size_t>(token_id)] = -kInfinity;
    }
  }
  if (penalties_on_) {
    counts_.Follow(history);
    for (const TokenCounts::Entry& entry : counts_.entries()) {
      if (!in_row(entry.token_id)) continue;
      float& logit = row_[static_cast<size_t>(entry.token_id)];
      logit = Penalise(logit, entry);
    }
  }
  return row_;
}

float LogitProcessors::Penalise(float logit,
                                const TokenCounts::Entry& entry) const {
  if (entry.in_prompt == 0 && entry.in_output == 0) return logit;
  double value = static_cast<double>(logit);
  value = value > 0 ? value / repetition_penalty_ : value * repetition_penalty_;
  if (entry.in_output > 0) {
    value -= frequency_penalty_ * static_cast<double>(entry.in_output);
    value -= presence_penalty_;
  }
  return ToFloat(value);
}

}  // namespace specwire
