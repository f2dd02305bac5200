// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace specwire {

// What a token is. Values are those of GGUF's tokenizer.ggml.token_type.
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Everything that turns text into a model's token ids and back, as plain data:
// a model file's reader fills it, GetModel carries it to the coordinator, and
// Tokenizer and ChatTemplate are built from it. Nothing in it has been checked;
// Tokenizer::Create does that.
struct TokenizerModel {
  // Kind of tokenizer; "gpt2" is byte-level BPE.
  std::string kind;
  // Name of the pre-tokenizer, for example "smollm".
  std::string pre;
  // Token texts by id, in the file's own spelling: for byte-level BPE a
  // printable character stands for each byte (GPT-2's table).
  std::vector<std::string> tokens;
  // One TokenType for each token.
  std::vector<int32_t> types;
  // BPE merges, best first, each "left right" in the file's spelling.
  std::vector<std::string> merges;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  // True if the model's files say that a raw prompt begins with bos_id.
  bool add_bos = false;
  // Jinja source; empty if the model has none.
  std::string chat_template;
};

}  // namespace specwire
