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

// Where encoding puts a space (U+2581) that the text does not have.
enum class LeadingSpace : int32_t {
  kNone = 0,
  // Before a text that does not begin with a space or a special token.
  kTextStart = 1,
  // Before every stretch between special tokens that does not begin with one.
  kStretchWithout = 2,
  // Before every stretch between special tokens.
  kStretch = 3,
};

// Everything that turns text into a model's token ids and back, as plain data:
// a model file's reader fills it, GetModel carries it to the coordinator, and
// Tokenizer and ChatTemplate are built from it. Nothing in it has been checked;
// Tokenizer::Create does that.
struct TokenizerModel {
  // Kind of tokenizer; "gpt2" is byte-level BPE, "llama" SentencePiece's BPE
  // with bytes as the fallback.
  std::string kind;
  // Name of the pre-tokenizer, for example "smollm". Kind "llama" has none.
  std::string pre;
  // Token texts by id, in the file's own spelling: for byte-level BPE a
  // printable character stands for each byte (GPT-2's table); for kind "llama"
  // U+2581 stands for a space and "<0x0A>" for a byte.
  std::vector<std::string> tokens;
  // One TokenType for each token.
  std::vector<int32_t> types;
  // BPE merges, best first, each "left right" in the file's spelling.
  std::vector<std::string> merges;
  // Kind "llama" without merges: by token, the score of the merges that make
  // it; the greatest comes first.
  std::vector<float> scores;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  // What stands for characters that have neither a token nor byte tokens. Kind
  // "llama" only.
  std::optional<int32_t> unk_id;
  // True if the model's files say that a raw prompt begins with bos_id.
  bool add_bos = false;
  // Kind "llama" only.
  LeadingSpace leading_space = LeadingSpace::kNone;
  // Control and user-defined tokens that are looked for after the text has been
  // normalised (and after all others), in their own normalised form.
  std::vector<int32_t> normalized_ids;
  // Jinja source; empty if the model has none.
  std::string chat_template;
};

}  // namespace specwire
