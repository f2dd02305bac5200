// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/string_view.h"
#include "specwire/v1/generation.pb.h"

namespace specwire::cli {

// How accepted draft tokens are set apart from the target's own.
enum class Marks { kNone, kColor, kBrackets };

// "auto", "color", "brackets" or "none"; auto is colour on a terminal and none
// elsewhere. REQUIRES: `name` is one of these.
Marks MarksFromName(absl::string_view name, bool is_terminal);

// Where in a delta's text a token's piece ends that is told to end at `told`:
// inside of the text, and not inside of a character.
size_t PieceEnd(absl::string_view text, int32_t told);

// Writes a completion as it arrives.
// Thread safety: one thread. Lifetime: `out` must outlive it.
class TokenPrinter {
 public:
  // `is_terminal`: control characters but line breaks and tabs are written as
  // escapes, so that a model cannot steer the terminal.
  TokenPrinter(std::FILE* out, Marks marks, bool is_terminal)
      : out_(out), marks_(marks), is_terminal_(is_terminal) {}

  // All return false once `out` cannot be written any more.
  bool Print(const v1::GenerateDelta& delta);
  // Text that nobody drafted.
  bool PrintPlain(absl::string_view text);
  // Text released at the end, and a line break unless the text has one.
  bool Finish(absl::string_view text);

 private:
  void Append(absl::string_view text, bool accepted);
  void SetAccepted(bool accepted);
  bool Flush();

  std::FILE* const out_;
  const Marks marks_;
  const bool is_terminal_;
  // Written at the next flush.
  std::string pending_;
  // The text so far ends inside of a marked part.
  bool accepted_ = false;
  char last_ = '\n';
};

}  // namespace specwire::cli
