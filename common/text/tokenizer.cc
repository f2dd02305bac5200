// SPDX-License-Identifier: Apache-2.0
#include "common/text/tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/text/nfc.h"
#include "common/text/spelled_space.h"
#include "common/text/utf8.h"

namespace specwire {
namespace {

bool InRange(int32_t id, size_t size) {
  return id >= 0 && static_cast<size_t>(id) < size;
}

}  // namespace

Tokenizer::Tokenizer(TokenizerModel model) : model_(std::move(model)) {
  byte_ids_.fill(-1);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(
    TokenizerModel model) {
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(std::move(model)));
  SPECWIRE_RETURN_IF_ERROR(tokenizer->CheckHeader());
  if (tokenizer->model_.kind == "gpt2") {
    SPECWIRE_ASSIGN_OR_RETURN(tokenizer->pre_tokenizer_,
                              PreTokenizer::Create(tokenizer->model_.pre));
  }
  SPECWIRE_RETURN_IF_ERROR(tokenizer->AddTokens());
  if (tokenizer->model_.scores.empty()) {
    SPECWIRE_RETURN_IF_ERROR(tokenizer->AddMerges());
  } else {
    SPECWIRE_RETURN_IF_ERROR(tokenizer->AddScoredMerges());
  }
  tokenizer->ComputeFingerprint();
  return tokenizer;
}

void Tokenizer::ComputeFingerprint() {
  Sha256 hash;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (type(id) == TokenType::kUnused) continue;
    hash.UpdateInt(id);
    hash.UpdateSized(TokenBytes(id));
    hash.UpdateInt(IsSpecial(id) ? 1 : 0);
  }
  fingerprint_ = hash.FinishHex();
}

TokenType Tokenizer::type(int32_t id) const {
  return static_cast<TokenType>(model_.types[static_cast<size_t>(id)]);
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(model_.tokens.size());
}

absl::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (!InRange(id, bytes_.size())) return {};
  return bytes_[static_cast<size_t>(id)];
}

bool Tokenizer::IsSpecial(int32_t id) const {
  if (!InRange(id, model_.types.size())) return false;
  return type(id) == TokenType::kControl || type(id) == TokenType::kUnknown;
}

std::string Tokenizer::Decode(absl::Span<const int32_t> ids,
                              bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (skip_special && IsSpecial(id)) continue;
    absl::StrAppend(&bytes, TokenBytes(id));
  }
  absl::string_view rest = bytes;
  if (model_.leading_space != LeadingSpace::kNone) {
    absl::ConsumePrefix(&rest, " ");
  }
  std::string text;
  AppendValidUtf8(rest, &text);
  return text;
}

std::string Tokenizer::Normalize(absl::string_view text) const {
  if (spells_spaces()) {
    return absl::StrReplaceAll(text, {{" ", kSpelledSpace}});
  }
  return pre_tokenizer_->normalizes_to_nfc() ? ToNfc(text) : std::string(text);
}

}  // namespace specwire
