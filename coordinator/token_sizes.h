// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstddef>

#include "absl/strings/string_view.h"
#include "common/text/tokenizer.h"

namespace specwire::coordinator {

// How many bytes tokens stand for at most, and which bytes have a token of
// their own: those that have none are dropped. Bounds what a text can have of
// tokens without tokenizing it.
//
// Thread safety: const methods from any thread.
class TokenSizes {
 public:
  // Of no vocabulary.
  TokenSizes() = default;
  // Looks at every token.
  explicit TokenSizes(const Tokenizer& tokenizer);

  // Of the longest token, in bytes; at least 1.
  size_t longest() const { return longest_; }
  // The fewest bytes that are left of a text to make tokens of. Normalisation
  // leaves a third of what is not ASCII at least, as with Hangul syllables.
  size_t LeastBytes(absl::string_view text) const;

 private:
  size_t longest_ = 1;
  std::bitset<256> known_;
};

}  // namespace specwire::coordinator
