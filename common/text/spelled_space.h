// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/strings/string_view.h"

namespace specwire {

// U+2581, which stands for a space in the tokens of SentencePiece.
inline constexpr absl::string_view kSpelledSpace = "\xE2\x96\x81";

}  // namespace specwire
