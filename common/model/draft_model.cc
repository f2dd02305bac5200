// SPDX-License-Identifier: Apache-2.0
#include "common/model/draft_model.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/model/gguf.h"

namespace specwire {
namespace {

constexpr char kFingerprint[] = "specwire.draft.vocabulary_fingerprint";
constexpr char kHeadTokenIds[] = "specwire.draft.head_token_ids";
constexpr char kTokenizer[] = "tokenizer.ggml.model";
constexpr int kMaxTokens = 1 << 20;
// SHA-256 in hexadecimal.
constexpr size_t kFingerprintDigits = 64;

absl::StatusOr<std::string> ReadFingerprint(const GgufFile& file) {
  SPECWIRE_ASSIGN_OR_RETURN(const absl::string_view text,
                            file.GetString(kFingerprint));
  const bool is_hex = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c)) ||
           (c >= 'a' && c <= 'f');
  });
  if (text.size() != kFingerprintDigits || !is_hex) {
    return file.Error(
        kFingerprint,
        absl::StrCat(
            "is not ", kFingerprintDigits, " lower-case hexadecimal digits"));
  }
  return std::string(text);
}

absl::StatusOr<std::vector<int32_t>> ReadHeadTokenIds(const GgufFile& file,
                                                      int vocab_size) {
  if (!file.Has(kHeadTokenIds)) return std::vector<int32_t>();
  SPECWIRE_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                            file.GetIntArray(kHeadTokenIds));
  if (ids.empty()) return file.Error(kHeadTokenIds, "has no elements");
  int32_t last = -1;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return file.Error(kHeadTokenIds,
                        absl::StrCat("element ",
                                     i,
                                     ": ",
                                     ids[i],
                                     " is not in [0, ",
                                     vocab_size,
                                     "), the vocabulary"));
    }
    if (ids[i] <= last) {
      return file.Error(
          kHeadTokenIds,
          absl::StrCat(
              "element ", i, ": ", ids[i], " is not above ", last, " before"));
    }
    last = ids[i];
  }
  // Ascending and as many as there are: each token's row is its own.
  if (ids.size() == static_cast<size_t>(vocab_size)) ids.clear();
  return ids;
}

absl::Status ReadText(const GgufFile& file,
                      absl::string_view key,
                      std::string* text) {
  if (!file.Has(key)) return absl::OkStatus();
  SPECWIRE_ASSIGN_OR_RETURN(const absl::string_view value, file.GetString(key));
  *text = std::string(value);
  return absl::OkStatus();
}

absl::Status ReadCount(const GgufFile& file,
                       absl::string_view key,
                       int64_t* count) {
  if (!file.Has(key)) return absl::OkStatus();
  SPECWIRE_ASSIGN_OR_RETURN(
      *count, file.GetInt(key, 0, std::numeric_limits<int64_t>::max()));
  return absl::OkStatus();
}

absl::Status ReadCard(const GgufFile& file, DraftModelInfo* info) {
  SPECWIRE_RETURN_IF_ERROR(ReadText(file, "general.name", &info->name));
  SPECWIRE_RETURN_IF_ERROR(
      ReadText(file, "general.description", &info->description));
  SPECWIRE_RETURN_IF_ERROR(
      ReadText(file, "specwire.draft.target", &info->target));
  SPECWIRE_RETURN_IF_ERROR(
      ReadText(file, "specwire.draft.target_digest", &info->target_digest));
  SPECWIRE_RETURN_IF_ERROR(ReadText(file, "specwire.draft.data", &info->data));
  SPECWIRE_RETURN_IF_ERROR(ReadCount(
      file, "specwire.draft.training_tokens", &info->training_tokens));
  return ReadCount(
      file, "specwire.draft.training_steps", &info->training_steps);
}

}  // namespace

absl::StatusOr<std::optional<DraftModelInfo>> ReadDraftModelInfo(
    const GgufFile& file) {
  if (!file.Has(kFingerprint)) {
    if (!file.Has(kHeadTokenIds)) return std::optional<DraftModelInfo>();
    return file.Error(kHeadTokenIds,
                      absl::StrCat("needs ", kFingerprint, " beside it"));
  }
  if (file.Has(kTokenizer)) {
    return file.Error(kFingerprint,
                      absl::StrCat("has no place beside ", kTokenizer));
  }
  DraftModelInfo info;
  SPECWIRE_ASSIGN_OR_RETURN(info.vocabulary_fingerprint, ReadFingerprint(file));
  SPECWIRE_ASSIGN_OR_RETURN(const absl::string_view architecture,
                            file.GetString("general.architecture"));
  SPECWIRE_ASSIGN_OR_RETURN(
      const int64_t vocab_size,
      file.GetInt(absl::StrCat(architecture, ".vocab_size"), 1, kMaxTokens));
  info.vocab_size = static_cast<int>(vocab_size);
  SPECWIRE_ASSIGN_OR_RETURN(info.head_token_ids,
                            ReadHeadTokenIds(file, info.vocab_size));
  SPECWIRE_RETURN_IF_ERROR(ReadCard(file, &info));
  return std::optional<DraftModelInfo>(std::move(info));
}

}  // namespace specwire
