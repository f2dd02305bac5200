// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace specwire {

// Text that others wrote, for a terminal, a log or an error: names of nodes,
// messages of servers, what a model generates. It is shown and does nothing.

// Whether the character could move the cursor, change colours or the title,
// break a line, or turn the order in which others are shown: C0 and C1
// controls, DEL, line and paragraph separators, and the controls of Unicode's
// bidirectional algorithm.
bool SteersTerminal(char32_t code_point);

// `text` with all that steers a terminal, and every byte that is not UTF-8,
// written as an escape such as \n, \x1b or \u202e; what is in `kept` stays.
std::string Printable(absl::string_view text, absl::string_view kept = {});

// An error as one line of bounded length: line breaks are spaces, all else is
// as Printable has it. Of a longer one the beginning and the end are kept,
// since a value that was refused stands between the field and the limit.
std::string ErrorLine(absl::string_view message);

}  // namespace specwire
