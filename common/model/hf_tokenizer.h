// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/text/tokenizer_model.h"

namespace specwire {

// The tokenizer and chat template of a model folder as Hugging Face publishes
// it. What the files ask for is what Tokenizer then does, token by token; what
// it cannot do is refused by name, never ignored.
//
// tokenizer.json: byte-pair encoding, byte-level (GPT-2, SmolLM2, Llama 3, Qwen
// 2 to 3, Mistral's Tekken) or with spaces spelled as U+2581 and bytes as the
// fallback (Llama 2, Mistral, Gemma). Normalisers, pre-tokenizers, decoders and
// post-processors are known by their exact forms. Added tokens that take space
// around them (lstrip, rstrip) or stand as words only (single_word) are
// refused, and so is a post-processor that ends a prompt, as with EOS: a prompt
// is to be continued.
//
// tokenizer_config.json, where there is one: bos_token and eos_token (else
// special_tokens_map.json tells), add_bos_token (else the post-processor tells)
// and chat_template (the one named "default" of several). chat_template.jinja
// comes before that.
//
// Ids without a token become unused tokens ("[PAD17]").
//
// The files are untrusted. NOT_FOUND if there is no tokenizer.json, else
// INVALID_ARGUMENT: "<path>: <field>: <problem>". Limits: 128 MiB a file (1 MiB
// for a template), 2^20 ids of which those without a token may be as many as
// those with one and 1024 more, 2^22 merges, and those of ReadJsonParts. What
// the texts of tokens mean is for Tokenizer::Create to judge.
absl::StatusOr<TokenizerModel> ReadHfTokenizer(const std::string& folder);

}  // namespace specwire
