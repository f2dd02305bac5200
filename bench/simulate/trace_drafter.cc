// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/trace_drafter.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "common/drafting/messages.h"

namespace specwire::simulate {

static_assert(2 * kMaxTracedTokens + kMaxWindow < kTraceVocabulary / 2,
              "no right token is a wrong one");

std::vector<int32_t> TraceText(const Trace& trace) {
  std::vector<int32_t> text(static_cast<size_t>(trace.prompt_tokens) +
                            trace.positions.size());
  std::iota(text.begin(), text.end(), RightToken(0));
  return text;
}

const TracePosition* TraceDrafter::At(int position) const {
  const auto index = static_cast<size_t>(position - trace_->prompt_tokens);
  return position >= trace_->prompt_tokens && index < trace_->positions.size()
             ? &trace_->positions[index]
             : nullptr;
}

TraceDrafter::Result TraceDrafter::Propose(absl::Span<const int32_t> path,
                                           const DraftLimits& limits) {
  Result result;
  const int begin = static_cast<int>(path.size());
  const bool on_text = path.back() == RightToken(begin - 1);
  const TracePosition* position = At(begin);
  int right = 0;
  // Of the position's run, tokens that are in the path already.
  int before = 0;
  if (on_text) {
    start_ = begin;
    right = position != nullptr ? position->right : 0;
  } else if (start_ >= 0 && begin - start_ < At(start_)->proposed) {
    position = At(start_);
    before = begin - start_;
  }
  if (position == nullptr) {
    if (on_text) start_ = -1;
    return result;
  }
  const int count = std::min(position->proposed - before, limits.max_tokens);
  const bool estimates = !position->survival.empty();
  const float reached =
      estimates && before > 0
          ? position->survival[static_cast<size_t>(before - 1)]
          : 1.0f;
  bool cut = false;
  for (int i = 0; i < count && !cut; ++i) {
    if (estimates) {
      const float survival =
          position->survival[static_cast<size_t>(before + i)];
      const float value = reached > 0 ? survival / reached : 0;
      cut = value < limits.min_survival;
      if (cut) break;
      result.run.survival.push_back(value);
    }
    result.run.tokens.push_back(i < right ? RightToken(begin + i)
                                          : WrongToken(begin + i));
  }
  if (position->model) {
    // What it did not offer was computed too.
    result.model_tokens =
        static_cast<int>(result.run.tokens.size()) + (cut ? 1 : 0);
  }
  return result;
}

}  // namespace specwire::simulate
