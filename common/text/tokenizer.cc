// SPDX-License-Identifier: Apache-2.0
#include "common/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/text/byte_spelling.h"
#include "common/text/nfc.h"
#include "common/text/utf8.h"

namespace specwire {
namespace {

template <typename... Args>
absl::Status FieldError(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer: ", args...));
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, 64)), "\"");
}

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
  SPECWIRE_ASSIGN_OR_RETURN(tokenizer->pre_tokenizer_,
                            PreTokenizer::Create(tokenizer->model_.pre));
  SPECWIRE_RETURN_IF_ERROR(tokenizer->AddTokens());
  SPECWIRE_RETURN_IF_ERROR(tokenizer->AddMerges());
  tokenizer->ComputeFingerprint();
  return tokenizer;
}

absl::Status Tokenizer::CheckHeader() const {
  if (model_.kind != "gpt2") {
    return FieldError("kind: ", Quoted(model_.kind), " is not \"gpt2\"");
  }
  const size_t size = model_.tokens.size();
  if (size == 0 || size > kMaxTokens) {
    return FieldError("tokens: ", size, " is not in [1, ", kMaxTokens, "]");
  }
  if (model_.types.size() != size) {
    return FieldError("types: ", model_.types.size(), " for ", size, " tokens");
  }
  if (model_.bos_id.has_value() && !InRange(*model_.bos_id, size)) {
    return FieldError("bos_id: ", *model_.bos_id, " is not in [0, ", size, ")");
  }
  if (model_.eos_id.has_value() && !InRange(*model_.eos_id, size)) {
    return FieldError("eos_id: ", *model_.eos_id, " is not in [0, ", size, ")");
  }
  if (model_.add_bos && !model_.bos_id.has_value()) {
    return FieldError("add_bos: set, but there is no bos_id");
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::AddTokens() {
  bytes_.resize(model_.tokens.size());
  for (int32_t id = 0; id < vocab_size(); ++id) {
    SPECWIRE_RETURN_IF_ERROR(AddToken(id));
  }
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const char text = static_cast<char>(byte);
    const auto it = ids_.find(absl::string_view(&text, 1));
    if (it != ids_.end()) byte_ids_[byte] = it->second;
  }
  if (model_.eos_id.has_value()) eos_ids_.push_back(*model_.eos_id);
  return absl::OkStatus();
}

absl::Status Tokenizer::AddToken(int32_t id) {
  const std::string& spelling = model_.tokens[static_cast<size_t>(id)];
  std::string& bytes = bytes_[static_cast<size_t>(id)];
  if (type(id) == TokenType::kUnused) return absl::OkStatus();
  const bool normal = type(id) == TokenType::kNormal;
  const size_t limit = normal ? kMaxTokenBytes : kMaxSpecialTokenBytes;
  if (spelling.empty() || spelling.size() > limit) {
    return FieldError("tokens[",
                      id,
                      "]: ",
                      spelling.size(),
                      " bytes are not in [1, ",
                      limit,
                      "]");
  }
  switch (type(id)) {
    case TokenType::kNormal:
      if (!BytesFromSpelling(spelling, &bytes)) {
        return FieldError("tokens[",
                          id,
                          "]: ",
                          Quoted(spelling),
                          " is not in the byte-level spelling");
      }
      if (const auto [it, added] = ids_.emplace(bytes, id); !added) {
        return FieldError("tokens[",
                          id,
                          "]: ",
                          Quoted(spelling),
                          " repeats ",
                          "tokens[",
                          it->second,
                          "]");
      }
      return absl::OkStatus();
    case TokenType::kUnknown:
    case TokenType::kControl:
    case TokenType::kUserDefined:
      bytes = spelling;
      matcher_.Add(bytes, id, IsSpecial(id));
      return absl::OkStatus();
    default:
      return FieldError("types[",
                        id,
                        "]: ",
                        model_.types[static_cast<size_t>(id)],
                        " has no place in kind \"gpt2\"");
  }
}

// A merge of tokens that do not exist, or to one, would be a rule that can
// never apply: the file is damaged.
absl::Status Tokenizer::AddMerges() {
  for (size_t i = 0; i < model_.merges.size(); ++i) {
    const absl::string_view merge = model_.merges[i];
    const size_t space = merge.find(' ');
    std::string left;
    std::string right;
    if (space == absl::string_view::npos ||
        !BytesFromSpelling(merge.substr(0, space), &left) ||
        !BytesFromSpelling(merge.substr(space + 1), &right)) {
      return FieldError("merges[",
                        i,
                        "]: ",
                        Quoted(merge),
                        " is not two tokens with a space between");
    }
    int32_t ids[3];
    const std::string texts[3] = {left, right, left + right};
    for (size_t k = 0; k < 3; ++k) {
      const auto it = ids_.find(texts[k]);
      if (it == ids_.end()) {
        return FieldError("merges[",
                          i,
                          "]: ",
                          Quoted(merge),
                          " needs ",
                          Quoted(texts[k]),
                          ", which is not a normal token");
      }
      ids[k] = it->second;
    }
    if (!bpe_.AddMerge(ids[0], ids[1], ids[2])) {
      return FieldError("merges[", i, "]: ", Quoted(merge), " is there twice");
    }
  }
  return absl::OkStatus();
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
  std::string text;
  AppendValidUtf8(bytes, &text);
  return text;
}

// One call of Encode.
class Tokenizer::Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Encodes a text that has no special tokens left in it.
  absl::Status AddPlain(absl::string_view text) {
    return tokenizer_.pre_tokenizer_->Split(
        text, [this](absl::string_view piece) { AddPiece(piece); });
  }
  void AddId(int32_t id) { ids_.push_back(id); }
  std::vector<int32_t> Take() { return std::move(ids_); }

 private:
  void AddPiece(absl::string_view piece) {
    if (tokenizer_.pre_tokenizer_->ignores_merges()) {
      const auto it = tokenizer_.ids_.find(piece);
      if (it != tokenizer_.ids_.end()) {
        ids_.push_back(it->second);
        return;
      }
    }
    word_.clear();
    for (const char byte : piece) {
      const int32_t id = tokenizer_.byte_ids_[static_cast<uint8_t>(byte)];
      // The original library, too, leaves unknown bytes out before it merges,
      // so that their neighbours become neighbours.
      if (id >= 0) word_.push_back(id);
    }
    tokenizer_.bpe_.Merge(word_, &scratch_, &ids_);
  }

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> word_;
  Bpe::Scratch scratch_;
};

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(
    absl::string_view text, SpecialTokens special) const {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "text: ", text.size(), " bytes exceed the limit of ", kMaxTextBytes));
  }
  const TextSegment segment{std::string(text),
                            special == SpecialTokens::kRecognise};
  return EncodeSegments(absl::MakeConstSpan(&segment, 1));
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeSegments(
    absl::Span<const TextSegment> segments) const {
  size_t size = 0;
  for (const TextSegment& segment : segments) size += segment.text.size();
  if (size > kMaxTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "text: ", size, " bytes exceed the limit of ", kMaxTextBytes));
  }
  // Normalised one by one: a mark at a seam stays apart from what is before
  // it, so that the seam keeps its place.
  std::string text;
  std::vector<size_t> ends;
  for (const TextSegment& segment : segments) {
    absl::StrAppend(&text,
                    pre_tokenizer_->normalizes_to_nfc() ? ToNfc(segment.text)
                                                        : segment.text);
    ends.push_back(text.size());
  }
  Encoder encoder(*this);
  // The text up to here has been encoded.
  size_t done = 0;
  // Matches are looked for from here on.
  size_t from = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    while (from < ends[i]) {
      const auto match =
          matcher_.Find(absl::string_view(text).substr(0, ends[i]),
                        from,
                        segments[i].special_allowed);
      if (!match.has_value()) break;
      SPECWIRE_RETURN_IF_ERROR(encoder.AddPlain(
          absl::string_view(text).substr(done, match->begin - done)));
      encoder.AddId(match->id);
      done = from = match->end;
    }
    from = ends[i];
  }
  SPECWIRE_RETURN_IF_ERROR(
      encoder.AddPlain(absl::string_view(text).substr(done)));
  return encoder.Take();
}

}  // namespace specwire
