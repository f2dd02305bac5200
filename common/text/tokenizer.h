// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/text/bpe.h"
#include "common/text/pre_tokenizer.h"
#include "common/text/special_matcher.h"
#include "common/text/text_segment.h"
#include "common/text/tokenizer_model.h"

namespace specwire {

// What Encode makes of the text of a control token.
enum class SpecialTokens { kRecognise, kAsText };

// Turns text into a model's token ids and back.
//
// Control tokens in a text become their ids only where the caller allows it;
// user-defined tokens, which are ordinary words to the model, always do. What
// lies between two of them is a stretch, and goes one of two ways.
//
// Byte-level byte-pair encoding (kind "gpt2"): no prefix space, and no
// normalisation unless the pre-tokenizer's family has one (Qwen2: NFC). Bytes
// that have no token are dropped before merging.
//
// SentencePiece's byte-pair encoding (kind "llama"): characters are merged, a
// space as U+2581, over the whole stretch. A character without a token becomes
// the tokens of its bytes, and where those are missing the unknown token, one
// for a run. TokenizerModel::leading_space says where a space is added, which
// Decode takes off again. No merge makes a control token.
//
// Thread safety: const methods from any thread.
class Tokenizer {
 public:
  // The most text that one call encodes.
  static constexpr size_t kMaxTextBytes = size_t{4} << 20;
  static constexpr size_t kMaxTokens = size_t{1} << 20;
  // The longest token, in the file's spelling.
  static constexpr size_t kMaxTokenBytes = 4096;
  // The longest control or user-defined token.
  static constexpr size_t kMaxSpecialTokenBytes = 256;
  // All of those together; they are kept as a tree of bytes.
  static constexpr size_t kMaxSpecialBytes = size_t{1} << 20;
  // Kind "llama" without merges: the most ways to make tokens of two others,
  // and the most steps to find them (the sum of the tokens' squared lengths).
  static constexpr size_t kMaxScoredMerges = size_t{1} << 22;
  static constexpr size_t kMaxScoringSteps = size_t{1} << 30;

  // INVALID_ARGUMENT, naming the field of TokenizerModel, if `model` does not
  // describe a tokenizer that this class implements in full.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(
      TokenizerModel model);
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Token ids of `text`, without BOS or EOS. Malformed UTF-8 is encoded byte
  // for byte. INVALID_ARGUMENT if `text` is longer than kMaxTextBytes.
  // `special` kAsText leaves the text of a control token to the merges.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              SpecialTokens special) const;

  // Token ids of the segments' concatenation. A control token is recognised
  // only where it lies wholly within a segment that allows it, and nothing that
  // begins before that segment takes it away; words, merges and added spaces
  // are those of the whole text, as if there were no seams.
  absl::StatusOr<std::vector<int32_t>> EncodeSegments(
      absl::Span<const TextSegment> segments) const;

  // The bytes that `id` stands for. Empty for unused ids and for ids that are
  // not in the vocabulary, such as those of padding rows.
  absl::string_view TokenBytes(int32_t id) const;

  // True for control tokens (and the unknown token, where there is one).
  bool IsSpecial(int32_t id) const;

  // The text of `ids` as valid UTF-8, with U+FFFD for each maximal subpart of
  // malformed bytes. `skip_special` leaves control tokens out. Where encoding
  // adds a space, the one that the text begins with is dropped.
  std::string Decode(absl::Span<const int32_t> ids, bool skip_special) const;

  int32_t vocab_size() const;
  std::optional<int32_t> bos_id() const { return model_.bos_id; }
  // The ids that end a completion; none, or the file's one.
  const std::vector<int32_t>& eos_ids() const { return eos_ids_; }
  // True if a raw prompt begins with bos_id(). Encode does not add it.
  bool add_bos() const { return model_.add_bos; }

  // SHA-256, in hexadecimal, over (id, bytes, special) of every token. Unused
  // tokens are left out wherever they stand, so vocabularies that differ only
  // in padding agree.
  const std::string& fingerprint() const { return fingerprint_; }

  // What it was made from.
  const TokenizerModel& model() const { return model_; }

 private:
  class Encoder;

  explicit Tokenizer(TokenizerModel model);
  absl::Status CheckHeader() const;
  absl::Status CheckKind() const;
  absl::Status CheckId(absl::string_view field,
                       const std::optional<int32_t>& id) const;
  absl::Status AddTokens();
  absl::StatusOr<std::vector<bool>> ReadNormalized() const;
  absl::Status AddToken(int32_t id, bool normalized);
  absl::Status AddSpecial(int32_t id, bool normalized);
  std::string NormalizedToken(absl::string_view spelling) const;
  absl::Status AddWord(int32_t id);
  absl::Status AddByte(int32_t id);
  absl::Status AddMerges();
  absl::StatusOr<std::optional<std::array<int32_t, 3>>> ReadMerge(
      size_t index) const;
  bool IsControlText(absl::string_view text) const;
  absl::Status AddScoredMerges();
  void ComputeFingerprint();
  TokenType type(int32_t id) const;
  // The text that merges see: spaces spelled, characters composed.
  std::string Normalize(absl::string_view text) const;
  // True for kind "llama".
  bool spells_spaces() const { return pre_tokenizer_ == nullptr; }

  const TokenizerModel model_;
  // None for kind "llama".
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  // By id.
  std::vector<std::string> bytes_;
  std::vector<int32_t> eos_ids_;
  std::string fingerprint_;
  // What merges start from and lead to. Kind "gpt2": normal tokens by their
  // bytes, views into bytes_. Kind "llama": normal and user-defined tokens by
  // their spelling, views into model_.
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
  // The token of each single byte, or -1.
  std::array<int32_t, 256> byte_ids_;
  Bpe bpe_;
  // Of the text as it is, and of what Normalize makes of it.
  SpecialMatcher matcher_;
  SpecialMatcher normalized_matcher_;
  size_t special_bytes_ = 0;
};

}  // namespace specwire
