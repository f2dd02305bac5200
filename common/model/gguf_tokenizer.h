// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/gguf.h"
#include "common/text/tokenizer_model.h"

namespace specwire {

// The tokenizer and chat template that a GGUF file carries (tokenizer.*).
//
// Checked here: there is at least one token and no more than 2^20, types are as
// many as tokens and known, BOS, EOS and the unknown token lie inside the
// vocabulary, byte-level BPE has merges, SentencePiece's (kind "llama") a score
// for each token and none of the normalisers that Tokenizer lacks. What the
// texts mean is for Tokenizer::Create to judge.
//
// Where the file has no token types every token is normal. Where it does not
// say whether a prompt begins with BOS, its kind of tokenizer does: Llama 3's
// and SentencePiece's begin with it, if there is one. Where it does not say
// whether SentencePiece's puts a space before a text, it does. Merges that a
// file has besides the scores of this kind are left out.
absl::StatusOr<TokenizerModel> ReadTokenizerModel(const GgufFile& file);

// The ids that end a sequence: those that the file names as EOS, EOT (end of
// turn) or EOM (end of message), ascending, each once. Empty if it names none.
// REQUIRES: vocab_size >= 1.
absl::StatusOr<std::vector<int32_t>> ReadEosIds(const GgufFile& file,
                                                int vocab_size);

}  // namespace specwire
