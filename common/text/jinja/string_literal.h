// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace specwire::jinja {

// Undoes the backslash escapes of a string literal, which are Python's. As
// there, a backslash before any other character stays. Returns false for an
// escape that is cut short or names no character.
bool UnescapeString(absl::string_view source, std::string* value);

}  // namespace specwire::jinja
