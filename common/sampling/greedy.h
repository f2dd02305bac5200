// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace specwire {

// Index of the largest logit, the lowest one among equals; NaN is never chosen.
// -1 if there is no number in `logits` at all.
int32_t ArgMax(absl::Span<const float> logits);

}  // namespace specwire
