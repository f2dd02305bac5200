// SPDX-License-Identifier: Apache-2.0
#include "cli/vocabulary.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cli/quoted.h"
#include "common/base/status_macros.h"

namespace specwire::cli {
namespace {

// Of a token in a sentence; the longest are no words.
constexpr size_t kMaxShownBytes = 48;

bool Speaks(const Tokenizer& tokenizer, int32_t id) {
  return id < tokenizer.vocab_size() && !tokenizer.TokenBytes(id).empty();
}

bool SameToken(const Tokenizer& a, const Tokenizer& b, int32_t id) {
  return Speaks(a, id) == Speaks(b, id) &&
         a.TokenBytes(id) == b.TokenBytes(id) &&
         (!Speaks(a, id) || a.IsSpecial(id) == b.IsSpecial(id));
}

std::string TokenText(const Tokenizer& tokenizer, int32_t id) {
  if (!Speaks(tokenizer, id)) return "no token";
  const absl::string_view bytes = tokenizer.TokenBytes(id);
  return absl::StrCat(Quoted(bytes.substr(0, kMaxShownBytes)),
                      bytes.size() > kMaxShownBytes ? "..." : "",
                      tokenizer.IsSpecial(id) ? " (special)" : "");
}

std::string FirstDifference(const Vocabulary& draft, const Vocabulary& target) {
  const Tokenizer& a = *draft.tokenizer;
  const Tokenizer& b = *target.tokenizer;
  for (int32_t id = 0; id < std::max(a.vocab_size(), b.vocab_size()); ++id) {
    if (SameToken(a, b, id)) continue;
    return absl::StrCat("; the first difference is token ",
                        id,
                        ", which is ",
                        TokenText(a, id),
                        " in the draft model's and ",
                        TokenText(b, id),
                        " in the target's");
  }
  return "";
}

std::string Described(const Vocabulary& vocabulary) {
  return absl::StrCat(vocabulary.size,
                      " tokens with the fingerprint ",
                      vocabulary.fingerprint.substr(0, 12));
}

}  // namespace

absl::StatusOr<Vocabulary> ReadVocabulary(const ModelFiles& files) {
  Vocabulary vocabulary;
  vocabulary.path = files.path();
  SPECWIRE_ASSIGN_OR_RETURN(vocabulary.draft, files.ReadDraftModel());
  if (vocabulary.draft.has_value()) {
    vocabulary.fingerprint = vocabulary.draft->vocabulary_fingerprint;
    vocabulary.size = vocabulary.draft->vocab_size;
    return vocabulary;
  }
  SPECWIRE_ASSIGN_OR_RETURN(TokenizerModel model, files.ReadTokenizer());
  auto tokenizer = Tokenizer::Create(std::move(model));
  if (!tokenizer.ok()) {
    return absl::Status(
        tokenizer.status().code(),
        absl::StrCat(files.path(), ": ", tokenizer.status().message()));
  }
  vocabulary.tokenizer = *std::move(tokenizer);
  vocabulary.fingerprint = vocabulary.tokenizer->fingerprint();
  vocabulary.size = vocabulary.tokenizer->vocab_size();
  return vocabulary;
}

absl::Status CheckPair(const Vocabulary& draft, const Vocabulary& target) {
  const std::string cannot =
      absl::StrCat(draft.path, " cannot draft for ", target.path, ": ");
  if (target.draft.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        cannot, "that is a draft model itself, which cannot be a target"));
  }
  if (draft.fingerprint == target.fingerprint) return absl::OkStatus();
  if (draft.draft.has_value()) {
    const std::string& made_for = draft.draft->target;
    return absl::FailedPreconditionError(
        absl::StrCat(cannot,
                     "it was made for ",
                     made_for.empty() ? "another target" : Quoted(made_for),
                     " and a vocabulary of ",
                     Described(draft),
                     ", and the target's has ",
                     Described(target)));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(cannot,
                   "their vocabularies differ, of ",
                   draft.size,
                   " and ",
                   target.size,
                   " tokens",
                   FirstDifference(draft, target)));
}

absl::Status CheckPairOfFiles(const std::string& draft,
                              const std::string& target) {
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFiles> draft_files,
                            ModelFiles::Open(draft));
  SPECWIRE_ASSIGN_OR_RETURN(const Vocabulary draft_vocabulary,
                            ReadVocabulary(*draft_files));
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFiles> target_files,
                            ModelFiles::Open(target));
  SPECWIRE_ASSIGN_OR_RETURN(const Vocabulary target_vocabulary,
                            ReadVocabulary(*target_files));
  return CheckPair(draft_vocabulary, target_vocabulary);
}

}  // namespace specwire::cli
