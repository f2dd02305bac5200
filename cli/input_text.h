// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace specwire::cli {

// The text that an argument stands for: "-" is all of standard input, "@FILE"
// the contents of a file, "@@..." a text that begins with one "@", anything
// else itself. INVALID_ARGUMENT if it cannot be read, is longer than 4 MiB or
// is not UTF-8.
absl::StatusOr<std::string> ReadTextArgument(const std::string& argument);

}  // namespace specwire::cli
