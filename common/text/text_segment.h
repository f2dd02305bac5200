// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace specwire {

// A stretch of a prompt and who wrote it. A rendered conversation is a list of
// these, so that the text of a special token inside a message stays text.
struct TextSegment {
  std::string text;
  // True for what the model's own template wrote: special tokens in it are
  // control tokens. False for data.
  bool special_allowed = false;

  friend bool operator==(const TextSegment&, const TextSegment&) = default;
};

}  // namespace specwire
