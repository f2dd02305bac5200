// SPDX-License-Identifier: Apache-2.0
#include "common/model/gguf_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace specwire {
namespace {

constexpr size_t kMaxTokens = 1 << 20;
constexpr size_t kMaxMerges = 1 << 22;

constexpr char kModel[] = "tokenizer.ggml.model";
constexpr char kPre[] = "tokenizer.ggml.pre";
constexpr char kTokens[] = "tokenizer.ggml.tokens";
constexpr char kTokenType[] = "tokenizer.ggml.token_type";
constexpr char kMerges[] = "tokenizer.ggml.merges";
constexpr char kScores[] = "tokenizer.ggml.scores";
constexpr char kBosId[] = "tokenizer.ggml.bos_token_id";
constexpr char kEosId[] = "tokenizer.ggml.eos_token_id";
constexpr char kUnkId[] = "tokenizer.ggml.unknown_token_id";
constexpr char kEotId[] = "tokenizer.ggml.eot_token_id";
constexpr char kEomId[] = "tokenizer.ggml.eom_token_id";
constexpr char kAddBos[] = "tokenizer.ggml.add_bos_token";
constexpr char kAddEos[] = "tokenizer.ggml.add_eos_token";
constexpr char kAddSpacePrefix[] = "tokenizer.ggml.add_space_prefix";
constexpr char kRemoveSpaces[] = "tokenizer.ggml.remove_extra_whitespaces";
constexpr char kCharsMap[] = "tokenizer.ggml.precompiled_charsmap";
constexpr char kChatTemplate[] = "tokenizer.chat_template";

absl::StatusOr<std::string> ReadString(const GgufFile& file,
                                       absl::string_view key) {
  SPECWIRE_ASSIGN_OR_RETURN(const absl::string_view text, file.GetString(key));
  return std::string(text);
}

absl::StatusOr<std::vector<std::string>> ReadStrings(const GgufFile& file,
                                                     absl::string_view key,
                                                     size_t limit) {
  SPECWIRE_ASSIGN_OR_RETURN(const auto texts, file.GetStringArray(key));
  if (texts.size() > limit) {
    return file.Error(
        key,
        absl::StrCat(
            "has ", texts.size(), " elements, above the limit of ", limit));
  }
  return std::vector<std::string>(texts.begin(), texts.end());
}

// The id under `key`, nothing if the file has no such key.
absl::StatusOr<std::optional<int32_t>> ReadId(const GgufFile& file,
                                              absl::string_view key,
                                              int64_t vocab_size) {
  if (!file.Has(key)) return std::optional<int32_t>();
  SPECWIRE_ASSIGN_OR_RETURN(const int64_t id,
                            file.GetInt(key, 0, vocab_size - 1));
  return std::optional<int32_t>(static_cast<int32_t>(id));
}

absl::StatusOr<std::vector<int32_t>> ReadTypes(const GgufFile& file,
                                               size_t num_tokens) {
  if (!file.Has(kTokenType)) {
    return std::vector<int32_t>(num_tokens,
                                static_cast<int32_t>(TokenType::kNormal));
  }
  SPECWIRE_ASSIGN_OR_RETURN(std::vector<int32_t> types,
                            file.GetIntArray(kTokenType));
  if (types.size() != num_tokens) {
    return file.Error(
        kTokenType,
        absl::StrCat(
            "has ", types.size(), " elements for ", num_tokens, " tokens"));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] < static_cast<int32_t>(TokenType::kNormal) ||
        types[i] > static_cast<int32_t>(TokenType::kByte)) {
      return file.Error(
          kTokenType,
          absl::StrCat("element ", i, ": unknown token type ", types[i]));
    }
  }
  return types;
}

// What SentencePiece's tokenizers have besides.
absl::Status ReadSentencePiece(const GgufFile& file, TokenizerModel* model) {
  SPECWIRE_ASSIGN_OR_RETURN(model->scores, file.GetFloatArray(kScores));
  if (model->scores.size() != model->tokens.size()) {
    return file.Error(kScores,
                      absl::StrCat("has ",
                                   model->scores.size(),
                                   " elements for ",
                                   model->tokens.size(),
                                   " tokens"));
  }
  if (file.Has(kCharsMap)) {
    return file.Error(kCharsMap, "a normaliser by table is not supported");
  }
  if (file.Has(kRemoveSpaces)) {
    SPECWIRE_ASSIGN_OR_RETURN(const bool removes, file.GetBool(kRemoveSpaces));
    if (removes) {
      return file.Error(kRemoveSpaces, "the removal is not supported");
    }
  }
  bool adds_space = true;
  if (file.Has(kAddSpacePrefix)) {
    SPECWIRE_ASSIGN_OR_RETURN(adds_space, file.GetBool(kAddSpacePrefix));
  }
  model->leading_space =
      adds_space ? LeadingSpace::kStretch : LeadingSpace::kNone;
  return absl::OkStatus();
}

// A prompt that ends with EOS is not gone on with.
absl::Status RefuseAddEos(const GgufFile& file) {
  if (!file.Has(kAddEos)) return absl::OkStatus();
  SPECWIRE_ASSIGN_OR_RETURN(const bool add_eos, file.GetBool(kAddEos));
  return add_eos ? file.Error(kAddEos, "true is not supported")
                 : absl::OkStatus();
}

absl::StatusOr<bool> ReadAddBos(const GgufFile& file,
                                const TokenizerModel& model) {
  if (!file.Has(kAddBos)) {
    const bool usual = model.kind == "llama" || model.pre == "llama-bpe" ||
                       model.pre == "llama3" || model.pre == "llama-v3";
    return usual && model.bos_id.has_value();
  }
  SPECWIRE_ASSIGN_OR_RETURN(const bool add_bos, file.GetBool(kAddBos));
  if (add_bos && !model.bos_id.has_value()) {
    return file.Error(kAddBos,
                      absl::StrCat("is true, but ", kBosId, " is absent"));
  }
  return add_bos;
}

}  // namespace

absl::StatusOr<TokenizerModel> ReadTokenizerModel(const GgufFile& file) {
  TokenizerModel model;
  SPECWIRE_ASSIGN_OR_RETURN(model.kind, ReadString(file, kModel));
  if (file.Has(kPre)) {
    SPECWIRE_ASSIGN_OR_RETURN(model.pre, ReadString(file, kPre));
  }
  SPECWIRE_ASSIGN_OR_RETURN(model.tokens,
                            ReadStrings(file, kTokens, kMaxTokens));
  if (model.tokens.empty()) return file.Error(kTokens, "has no elements");
  SPECWIRE_ASSIGN_OR_RETURN(model.types, ReadTypes(file, model.tokens.size()));
  const int64_t vocab_size = static_cast<int64_t>(model.tokens.size());
  if (model.kind == "llama") {
    SPECWIRE_RETURN_IF_ERROR(ReadSentencePiece(file, &model));
    SPECWIRE_ASSIGN_OR_RETURN(model.unk_id, ReadId(file, kUnkId, vocab_size));
  } else if (model.kind == "gpt2" || file.Has(kMerges)) {
    SPECWIRE_ASSIGN_OR_RETURN(model.merges,
                              ReadStrings(file, kMerges, kMaxMerges));
  }
  SPECWIRE_ASSIGN_OR_RETURN(model.bos_id, ReadId(file, kBosId, vocab_size));
  SPECWIRE_ASSIGN_OR_RETURN(model.eos_id, ReadId(file, kEosId, vocab_size));
  SPECWIRE_ASSIGN_OR_RETURN(model.add_bos, ReadAddBos(file, model));
  SPECWIRE_RETURN_IF_ERROR(RefuseAddEos(file));
  if (file.Has(kChatTemplate)) {
    SPECWIRE_ASSIGN_OR_RETURN(model.chat_template,
                              ReadString(file, kChatTemplate));
  }
  return model;
}

absl::StatusOr<std::vector<int32_t>> ReadEosIds(const GgufFile& file,
                                                int vocab_size) {
  std::vector<int32_t> ids;
  for (const char* key : {kEosId, kEotId, kEomId}) {
    SPECWIRE_ASSIGN_OR_RETURN(const std::optional<int32_t> id,
                              ReadId(file, key, vocab_size));
    if (id.has_value()) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace specwire
