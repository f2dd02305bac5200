// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "common/text/tokenizer.h"

namespace specwire {

// Turns a stream of token ids into text as it arrives. A token may end inside
// of a character; such bytes are held back until the character is complete or
// cannot become one, so what has been released never changes, and the pieces
// together are Tokenizer::Decode of all ids.
//
// Thread safety: one thread at a time.
// Lifetime: *tokenizer outlives it.
class Detokenizer {
 public:
  // `skip_special` leaves control tokens out of the text.
  Detokenizer(const Tokenizer* tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that `id` completes; valid UTF-8, may be empty.
  std::string Push(int32_t id);

  // The held-back bytes as U+FFFD; empty if there are none. A new text may
  // begin after it.
  std::string Finish();

  // True if bytes are held back.
  bool pending() const { return !pending_.empty(); }

 private:
  const Tokenizer* const tokenizer_;
  const bool skip_special_;
  // An incomplete character: three bytes at most.
  std::string pending_;
};

}  // namespace specwire
