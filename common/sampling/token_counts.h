// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/sampling/history.h"

namespace specwire {

// How often each token stands in prompt and output. Follows a history from one
// position to the next, and back when draft tokens were wrong, at the cost of
// what changed and one comparison of what did not.
//
// Thread safety: one thread at a time.
class TokenCounts {
 public:
  struct Entry {
    int32_t token_id = 0;
    int32_t in_prompt = 0;
    int32_t in_output = 0;
  };

  explicit TokenCounts(int prompt_length)
      : prompt_length_(static_cast<size_t>(prompt_length)) {}

  // From now on these tokens are counted.
  void Follow(const TokenHistory& history);

  // One entry for each token that is or was in the history; both counts are 0
  // where it no longer is.
  absl::Span<const Entry> entries() const { return entries_; }

 private:
  void Extend(absl::Span<const int32_t> tokens);
  // Adds `change` to the count of the token at an index of the history.
  void Count(size_t index, int32_t token_id, int32_t change);

  size_t prompt_length_;
  // What is counted.
  std::vector<int32_t> tokens_;
  std::vector<Entry> entries_;
  absl::flat_hash_map<int32_t, size_t> entry_of_;
};

}  // namespace specwire
