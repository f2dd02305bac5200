// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace specwire {

// Unicode normalisation form C of `text`. Malformed bytes stay as they are and
// are composed with nothing. Takes time linear in the text but for the sorting
// of combining marks, which is n log n in their number.
// REQUIRES: text has less than 2^30 bytes.
std::string ToNfc(absl::string_view text);

}  // namespace specwire
