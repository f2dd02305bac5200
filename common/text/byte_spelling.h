// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace specwire {

// Undoes the spelling that byte-level vocabularies use in files, where a
// printable character stands for each byte (GPT-2's table): bytes that are
// printable in Latin-1 stand for themselves, the rest are numbered from U+0100.
// Returns false if `spelling` has a character outside the table.
bool BytesFromSpelling(absl::string_view spelling, std::string* bytes);

// The spelling of `bytes`.
std::string SpellingFromBytes(absl::string_view bytes);

}  // namespace specwire
