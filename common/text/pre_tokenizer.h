// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace specwire {

// Cuts a text into the pieces inside of which byte-pair merges may happen:
// words, numbers, runs of punctuation and of white space.
//
// The rules are a fixed list of published patterns, chosen by the name that a
// model file gives; a pattern is never read from a file or a request. They run
// in PCRE2 under a match limit.
//
// Thread safety: const methods from any thread.
class PreTokenizer {
 public:
  // Steps of backtracking for one piece. None of the patterns takes more than
  // a few for each character of its piece, so it is out of reach for texts of
  // 16 MiB.
  static constexpr uint32_t kDefaultMatchLimit = 1u << 26;

  // INVALID_ARGUMENT, naming the known ones, if `name` is none of them.
  static absl::StatusOr<std::unique_ptr<PreTokenizer>> Create(
      absl::string_view name, uint32_t match_limit = kDefaultMatchLimit);
  // The name of the known one that cuts by `pattern`, as it was published, and
  // has these properties; empty if there is none.
  static absl::string_view FindName(absl::string_view pattern,
                                    bool ignores_merges,
                                    bool normalizes_to_nfc);
  ~PreTokenizer();
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  // Calls `emit` for each piece of `text`, in order; together the pieces are
  // the text. A malformed byte counts as a symbol (as U+FFFD does) and is
  // handed on as it is. RESOURCE_EXHAUSTED if the match limit was reached;
  // what was emitted until then is not the whole text.
  absl::Status Split(absl::string_view text,
                     absl::FunctionRef<void(absl::string_view)> emit) const;

  // The pattern of GPT-2, and the same with every digit by itself.
  static absl::string_view Gpt2Pattern();
  static absl::string_view SingleDigitsPattern();

  // True if a piece that is a token is taken as it is, whatever the merges
  // would make of it.
  bool ignores_merges() const;
  // True if texts are brought to normalisation form C first.
  bool normalizes_to_nfc() const;

 private:
  struct Impl;
  explicit PreTokenizer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace specwire
