// SPDX-License-Identifier: Apache-2.0
// How a Tokenizer is made from its model: checks, tokens, merges.
#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/text/byte_spelling.h"
#include "common/text/spelled_space.h"
#include "common/text/tokenizer.h"
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

// The byte of "<0x41>"; nothing if it is not spelled so.
std::optional<uint8_t> ByteFromToken(absl::string_view spelling) {
  uint32_t byte = 0;
  if (spelling.size() != 6 || spelling.substr(0, 3) != "<0x" ||
      spelling[5] != '>' ||
      !absl::ascii_isxdigit(static_cast<unsigned char>(spelling[3])) ||
      !absl::SimpleHexAtoi(spelling.substr(3, 2), &byte)) {
    return std::nullopt;
  }
  return static_cast<uint8_t>(byte);
}

// The rank of each score, the greatest score's being 0 and equals having one.
std::vector<uint32_t> RanksOf(const std::vector<float>& scores) {
  std::vector<float> sorted = scores;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::vector<uint32_t> ranks;
  ranks.reserve(scores.size());
  for (const float score : scores) {
    const auto it =
        std::lower_bound(sorted.begin(), sorted.end(), score, std::greater<>());
    ranks.push_back(static_cast<uint32_t>(it - sorted.begin()));
  }
  return ranks;
}

}  // namespace

absl::Status Tokenizer::CheckId(absl::string_view field,
                                const std::optional<int32_t>& id) const {
  const size_t size = model_.tokens.size();
  if (!id.has_value()) return absl::OkStatus();
  if (*id >= 0 && static_cast<size_t>(*id) < size) return absl::OkStatus();
  return FieldError(field, ": ", *id, " is not in [0, ", size, ")");
}

absl::Status Tokenizer::CheckHeader() const {
  const size_t size = model_.tokens.size();
  if (model_.kind != "gpt2" && model_.kind != "llama") {
    return FieldError(
        "kind: ", Quoted(model_.kind), " is neither \"gpt2\" nor \"llama\"");
  }
  if (size == 0 || size > kMaxTokens) {
    return FieldError("tokens: ", size, " is not in [1, ", kMaxTokens, "]");
  }
  if (model_.types.size() != size) {
    return FieldError("types: ", model_.types.size(), " for ", size, " tokens");
  }
  SPECWIRE_RETURN_IF_ERROR(CheckId("bos_id", model_.bos_id));
  SPECWIRE_RETURN_IF_ERROR(CheckId("eos_id", model_.eos_id));
  SPECWIRE_RETURN_IF_ERROR(CheckId("unk_id", model_.unk_id));
  if (model_.add_bos && !model_.bos_id.has_value()) {
    return FieldError("add_bos: set, but there is no bos_id");
  }
  return CheckKind();
}

absl::Status Tokenizer::CheckKind() const {
  const auto space = static_cast<int32_t>(model_.leading_space);
  if (space < static_cast<int32_t>(LeadingSpace::kNone) ||
      space > static_cast<int32_t>(LeadingSpace::kStretch)) {
    return FieldError("leading_space: unknown value ", space);
  }
  if (model_.kind == "gpt2") {
    if (model_.leading_space != LeadingSpace::kNone) {
      return FieldError("leading_space: has no place in kind \"gpt2\"");
    }
    if (!model_.scores.empty()) {
      return FieldError("scores: have no place in kind \"gpt2\"");
    }
    return absl::OkStatus();
  }
  if (model_.scores.empty() == model_.merges.empty()) {
    return FieldError("scores: kind \"llama\" has either these or merges");
  }
  if (!model_.scores.empty() && model_.scores.size() != model_.tokens.size()) {
    return FieldError("scores: ",
                      model_.scores.size(),
                      " for ",
                      model_.tokens.size(),
                      " tokens");
  }
  for (size_t i = 0; i < model_.scores.size(); ++i) {
    if (!std::isfinite(model_.scores[i])) {
      return FieldError("scores[", i, "]: ", model_.scores[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::AddTokens() {
  bytes_.resize(model_.tokens.size());
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<bool> normalized,
                            ReadNormalized());
  for (int32_t id = 0; id < vocab_size(); ++id) {
    SPECWIRE_RETURN_IF_ERROR(AddToken(id, normalized[static_cast<size_t>(id)]));
  }
  if (!spells_spaces()) {
    for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
      const char text = static_cast<char>(byte);
      const auto it = ids_.find(absl::string_view(&text, 1));
      if (it != ids_.end()) byte_ids_[byte] = it->second;
    }
  }
  if (model_.eos_id.has_value()) eos_ids_.push_back(*model_.eos_id);
  return absl::OkStatus();
}

absl::Status Tokenizer::AddToken(int32_t id, bool normalized) {
  const std::string& spelling = model_.tokens[static_cast<size_t>(id)];
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
  std::string& bytes = bytes_[static_cast<size_t>(id)];
  switch (type(id)) {
    case TokenType::kNormal:
      return AddWord(id);
    case TokenType::kByte:
      if (spells_spaces()) return AddByte(id);
      break;
    case TokenType::kUnknown:
    case TokenType::kControl:
      bytes = spelling;
      if (spells_spaces()) {
        absl::StrReplaceAll({{kSpelledSpace, " "}}, &bytes);
      }
      return AddSpecial(id, normalized);
    case TokenType::kUserDefined:
      SPECWIRE_RETURN_IF_ERROR(AddSpecial(id, normalized));
      if (spells_spaces()) return AddWord(id);
      bytes = spelling;
      return absl::OkStatus();
    default:
      break;
  }
  return FieldError("types[",
                    id,
                    "]: ",
                    model_.types[static_cast<size_t>(id)],
                    " has no place in kind \"",
                    model_.kind,
                    "\"");
}

// Adds a token that is looked for before words are.
absl::Status Tokenizer::AddSpecial(int32_t id, bool normalized) {
  const std::string& spelling = model_.tokens[static_cast<size_t>(id)];
  special_bytes_ += spelling.size();
  if (special_bytes_ > kMaxSpecialBytes) {
    return FieldError(
        "tokens: the control and user-defined ones have more than ",
        kMaxSpecialBytes,
        " bytes");
  }
  if (normalized) {
    normalized_matcher_.Add(NormalizedToken(spelling), id, IsSpecial(id));
  } else {
    matcher_.Add(spelling, id, IsSpecial(id));
  }
  return absl::OkStatus();
}

// What a token's text is in a text that has been normalised.
std::string Tokenizer::NormalizedToken(absl::string_view spelling) const {
  std::string text = Normalize(spelling);
  // A stretch is normalised with its space, and so was the token: one of this
  // kind is found at the beginning of a stretch and after spaces only.
  if (model_.leading_space == LeadingSpace::kStretch) {
    text.insert(0, kSpelledSpace.data(), kSpelledSpace.size());
  }
  return text;
}

// Which tokens normalized_ids names.
absl::StatusOr<std::vector<bool>> Tokenizer::ReadNormalized() const {
  std::vector<bool> normalized(model_.tokens.size());
  for (size_t i = 0; i < model_.normalized_ids.size(); ++i) {
    const int32_t id = model_.normalized_ids[i];
    SPECWIRE_RETURN_IF_ERROR(
        CheckId(absl::StrCat("normalized_ids[", i, "]"), id));
    if (!IsSpecial(id) && type(id) != TokenType::kUserDefined) {
      return FieldError("normalized_ids[",
                        i,
                        "]: ",
                        id,
                        " is neither a control nor a user-defined token");
    }
    normalized[static_cast<size_t>(id)] = true;
  }
  return normalized;
}

// Adds a token that merges may make.
absl::Status Tokenizer::AddWord(int32_t id) {
  const std::string& spelling = model_.tokens[static_cast<size_t>(id)];
  std::string& bytes = bytes_[static_cast<size_t>(id)];
  if (spells_spaces()) {
    bytes = absl::StrReplaceAll(spelling, {{kSpelledSpace, " "}});
  } else if (!BytesFromSpelling(spelling, &bytes)) {
    return FieldError("tokens[",
                      id,
                      "]: ",
                      Quoted(spelling),
                      " is not in the byte-level spelling");
  }
  const absl::string_view key = spells_spaces() ? spelling : bytes;
  if (const auto [it, added] = ids_.emplace(key, id); !added) {
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
}

absl::Status Tokenizer::AddByte(int32_t id) {
  const std::string& spelling = model_.tokens[static_cast<size_t>(id)];
  const std::optional<uint8_t> byte = ByteFromToken(spelling);
  if (!byte.has_value()) {
    return FieldError("tokens[",
                      id,
                      "]: ",
                      Quoted(spelling),
                      " is not a byte, such as \"<0x0A>\"");
  }
  if (byte_ids_[*byte] >= 0) {
    return FieldError("tokens[",
                      id,
                      "]: ",
                      Quoted(spelling),
                      " repeats ",
                      "tokens[",
                      byte_ids_[*byte],
                      "]");
  }
  byte_ids_[*byte] = id;
  bytes_[static_cast<size_t>(id)] = std::string(1, static_cast<char>(*byte));
  return absl::OkStatus();
}

// A merge of tokens that do not exist, or to one, would be a rule that can
// never apply: the file is damaged.
absl::Status Tokenizer::AddMerges() {
  for (size_t i = 0; i < model_.merges.size(); ++i) {
    SPECWIRE_ASSIGN_OR_RETURN(const auto ids, ReadMerge(i));
    if (!ids.has_value()) continue;
    if (!bpe_.AddMerge(
            (*ids)[0], (*ids)[1], (*ids)[2], static_cast<uint32_t>(i))) {
      return FieldError(
          "merges[", i, "]: ", Quoted(model_.merges[i]), " is there twice");
    }
  }
  return absl::OkStatus();
}

// The ids of the left, the right and the merged token. Nothing where one is a
// control token of kind "llama", whose text never becomes one by merging.
absl::StatusOr<std::optional<std::array<int32_t, 3>>> Tokenizer::ReadMerge(
    size_t index) const {
  const absl::string_view merge = model_.merges[index];
  const auto error = [&](const auto&... args) {
    return FieldError("merges[", index, "]: ", Quoted(merge), args...);
  };
  const size_t space = merge.find(' ');
  if (space == absl::string_view::npos) {
    return error(" is not two tokens with a space between");
  }
  std::string texts[3] = {std::string(merge.substr(0, space)),
                          std::string(merge.substr(space + 1)),
                          ""};
  if (!spells_spaces()) {
    const std::string left = texts[0];
    const std::string right = texts[1];
    if (!BytesFromSpelling(left, &texts[0]) ||
        !BytesFromSpelling(right, &texts[1])) {
      return error(" is not two tokens with a space between");
    }
  }
  texts[2] = texts[0] + texts[1];
  std::array<int32_t, 3> ids;
  for (size_t k = 0; k < 3; ++k) {
    const auto it = ids_.find(texts[k]);
    if (it == ids_.end()) {
      if (spells_spaces() && IsControlText(texts[k])) return std::nullopt;
      return error(
          " needs ", Quoted(texts[k]), ", which is not a normal token");
    }
    ids[k] = it->second;
  }
  return ids;
}

bool Tokenizer::IsControlText(absl::string_view text) const {
  return matcher_.IsControl(text) ||
         normalized_matcher_.IsControl(NormalizedToken(text));
}

// Every way to make a token of two others is a rule; the score of what it makes
// is its rank.
absl::Status Tokenizer::AddScoredMerges() {
  size_t steps = 0;
  for (const auto& [text, id] : ids_) steps += text.size() * text.size();
  if (steps > kMaxScoringSteps) {
    return FieldError("tokens: too long together for merges by score (",
                      steps,
                      " steps exceed the limit of ",
                      kMaxScoringSteps,
                      ")");
  }
  const std::vector<uint32_t> ranks = RanksOf(model_.scores);
  for (const auto& [text, id] : ids_) {
    for (size_t cut = CharacterLength(text); cut < text.size();
         cut += CharacterLength(text.substr(cut))) {
      const auto left = ids_.find(text.substr(0, cut));
      if (left == ids_.end()) continue;
      const auto right = ids_.find(text.substr(cut));
      if (right == ids_.end()) continue;
      bpe_.AddMerge(
          left->second, right->second, id, ranks[static_cast<size_t>(id)]);
    }
    if (bpe_.size() > kMaxScoredMerges) {
      return FieldError("tokens: more than ",
                        kMaxScoredMerges,
                        " ways to make them of two others");
    }
  }
  return absl::OkStatus();
}

}  // namespace specwire
