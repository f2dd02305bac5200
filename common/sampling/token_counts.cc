// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/token_counts.h"

#include <algorithm>

#include "common/base/common_length.h"

namespace specwire {

void TokenCounts::Follow(const TokenHistory& history) {
  size_t same = CommonLength(tokens_, history.settled);
  if (same == history.settled.size()) {
    same +=
        CommonLength(absl::MakeConstSpan(tokens_).subspan(same), history.run);
  }
  while (tokens_.size() > same) {
    Count(tokens_.size() - 1, tokens_.back(), -1);
    tokens_.pop_back();
  }
  const size_t settled = std::min(same, history.settled.size());
  Extend(history.settled.subspan(settled));
  Extend(history.run.subspan(same - settled));
}

void TokenCounts::Extend(absl::Span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    Count(tokens_.size(), token, 1);
    tokens_.push_back(token);
  }
}

void TokenCounts::Count(size_t index, int32_t token_id, int32_t change) {
  const auto [it, added] = entry_of_.try_emplace(token_id, entries_.size());
  if (added) entries_.push_back({.token_id = token_id});
  Entry& entry = entries_[it->second];
  (index < prompt_length_ ? entry.in_prompt : entry.in_output) += change;
}

}  // namespace specwire
