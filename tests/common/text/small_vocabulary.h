// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/text/byte_spelling.h"
#include "common/text/tokenizer_model.h"

namespace specwire {

// A byte-level vocabulary for tests: ids 0 to 255 are the bytes, then come the
// tokens of `merges` (pairs of byte strings, best first), then control tokens
// "<|end|>" and "<|start|>" and the user-defined token "<tool>".
inline TokenizerModel SmallVocabulary(
    const std::vector<std::pair<std::string, std::string>>& merges = {
        {"h", "e"},
        {"l", "l"},
        {"he", "ll"},
        {"hell", "o"},
        {" ", "w"},
        {" ", " "},
        {"  ", "  "},
        {"a", "a"},
        {"aa", "aa"},
    }) {
  TokenizerModel model;
  model.kind = "gpt2";
  model.pre = "smollm";
  const auto add = [&](const std::string& spelling, TokenType type) {
    model.tokens.push_back(spelling);
    model.types.push_back(static_cast<int32_t>(type));
  };
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    add(SpellingFromBytes(absl::string_view(&text, 1)), TokenType::kNormal);
  }
  for (const auto& [left, right] : merges) {
    add(SpellingFromBytes(left + right), TokenType::kNormal);
    model.merges.push_back(SpellingFromBytes(left) + " " +
                           SpellingFromBytes(right));
  }
  const auto end = static_cast<int32_t>(model.tokens.size());
  add("<|end|>", TokenType::kControl);
  add("<|start|>", TokenType::kControl);
  add("<tool>", TokenType::kUserDefined);
  model.eos_id = end;
  model.bos_id = end + 1;
  return model;
}

}  // namespace specwire
