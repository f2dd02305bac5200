// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/spelled_space.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"

namespace specwire {

// One call of EncodeSegments.
class Tokenizer::Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, absl::Span<const TextSegment> segments)
      : tokenizer_(tokenizer), model_(tokenizer.model_) {
    for (const TextSegment& segment : segments) {
      absl::StrAppend(&text_, segment.text);
      parts_.push_back({text_.size(), segment.special_allowed});
    }
  }

  absl::StatusOr<std::vector<int32_t>> Run() {
    SPECWIRE_RETURN_IF_ERROR(ForEachStretch(
        tokenizer_.matcher_, text_, parts_, [this](size_t begin, size_t end) {
          return AddStretch(begin, end);
        }));
    return std::move(ids_);
  }

 private:
  // A part of a text up to `end`, and whether control tokens count in it.
  struct Part {
    size_t end;
    bool special_allowed;
  };

  // Cuts `text` at the tokens of `matcher`: their ids are appended, and what
  // lies between is handed to `add_stretch`. A control token lies wholly in one
  // part. Another may cross seams, but takes nothing away from a control token
  // that a later part wrote.
  template <typename AddStretch>
  absl::Status ForEachStretch(const SpecialMatcher& matcher,
                              absl::string_view text,
                              const std::vector<Part>& parts,
                              AddStretch add_stretch) {
    // The text up to here has been encoded.
    size_t done = 0;
    // Matches are looked for from here on.
    size_t from = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      while (from < part.end) {
        const auto match = matcher.Find(
            text, from, part.end, part.special_allowed, [&](size_t end) {
              return !CutsControl(matcher, text, parts, i, end);
            });
        if (!match.has_value()) break;
        SPECWIRE_RETURN_IF_ERROR(add_stretch(done, match->begin));
        ids_.push_back(match->id);
        done = from = match->end;
      }
      from = std::max(from, part.end);
    }
    return add_stretch(done, text.size());
  }

  // True if a control token that counts begins behind part `i` and before
  // `end`.
  static bool CutsControl(const SpecialMatcher& matcher,
                          absl::string_view text,
                          const std::vector<Part>& parts,
                          size_t i,
                          size_t end) {
    for (; parts[i].end < end; ++i) {
      const Part& next = parts[i + 1];
      if (!next.special_allowed) continue;
      for (size_t at = parts[i].end; at < std::min(end, next.end); ++at) {
        if (matcher.BeginsWithControl(text.substr(at, next.end - at))) {
          return true;
        }
      }
    }
    return false;
  }

  // Encodes text_[begin, end), which has no tokens of matcher_ left in it.
  absl::Status AddStretch(size_t begin, size_t end) {
    if (begin == end) return absl::OkStatus();
    std::string text;
    std::vector<Part> parts;
    if (model_.leading_space == LeadingSpace::kStretch) {
      absl::StrAppend(&text, kSpelledSpace);
    }
    // Normalised part by part: a mark at a seam stays apart from what is before
    // it, so that the seam keeps its place.
    for (size_t from = begin; from < end;) {
      while (parts_[part_].end <= from) ++part_;
      const size_t to = std::min(end, parts_[part_].end);
      absl::StrAppend(&text,
                      tokenizer_.Normalize(
                          absl::string_view(text_).substr(from, to - from)));
      parts.push_back({text.size(), parts_[part_].special_allowed});
      from = to;
    }
    return ForEachStretch(tokenizer_.normalized_matcher_,
                          text,
                          parts,
                          [&](size_t from, size_t to) {
                            return AddPlain(
                                absl::string_view(text).substr(from, to - from),
                                /*at_start=*/begin == 0 && from == 0);
                          });
  }

  // Encodes normalised text that has no special tokens left in it.
  absl::Status AddPlain(absl::string_view text, bool at_start) {
    if (text.empty()) return absl::OkStatus();
    if (tokenizer_.spells_spaces()) {
      AddCharacters(text, at_start);
      return absl::OkStatus();
    }
    return tokenizer_.pre_tokenizer_->Split(
        text, [this](absl::string_view piece) { AddPiece(piece); });
  }

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

  void AddCharacters(absl::string_view text, bool at_start) {
    word_.clear();
    const bool adds_space =
        model_.leading_space == LeadingSpace::kStretchWithout ||
        (model_.leading_space == LeadingSpace::kTextStart && at_start);
    if (adds_space && !absl::StartsWith(text, kSpelledSpace)) {
      AddCharacter(kSpelledSpace);
    }
    while (!text.empty()) {
      const size_t length = CharacterLength(text);
      AddCharacter(text.substr(0, length));
      text.remove_prefix(length);
    }
    FlushUnknown();
    tokenizer_.bpe_.Merge(word_, &scratch_, &ids_);
  }

  void AddCharacter(absl::string_view character) {
    const auto it = tokenizer_.ids_.find(character);
    if (it != tokenizer_.ids_.end()) {
      FlushUnknown();
      word_.push_back(it->second);
    } else if (!AddBytes(character)) {
      unknown_ = true;
    }
  }

  // Appends the tokens of the bytes; false if one is missing.
  bool AddBytes(absl::string_view bytes) {
    const size_t size = word_.size();
    for (const char byte : bytes) {
      const int32_t id = tokenizer_.byte_ids_[static_cast<uint8_t>(byte)];
      if (id < 0) {
        word_.resize(size);
        return false;
      }
      word_.push_back(id);
    }
    return true;
  }

  // A run of unknown characters is one token. As in the original library, it
  // comes before the next character that has a token: after any that became
  // bytes.
  void FlushUnknown() {
    if (unknown_ && model_.unk_id.has_value()) word_.push_back(*model_.unk_id);
    unknown_ = false;
  }

  const Tokenizer& tokenizer_;
  const TokenizerModel& model_;
  std::string text_;
  std::vector<Part> parts_;
  // The part that the current stretch has come to.
  size_t part_ = 0;
  std::vector<int32_t> ids_;
  std::vector<int32_t> word_;
  bool unknown_ = false;
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
  return Encoder(*this, segments).Run();
}

}  // namespace specwire
