// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace specwire::cli {

// A token or a text in quotes, for a terminal: as Printable has it, and what
// stands between the quotes is unambiguous, so '"' and '\' are escaped too.
std::string Quoted(absl::string_view text);

}  // namespace specwire::cli
