// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace specwire::verifier {

// INTERNAL if one of a pass's logits is no number, as of a model that is
// broken. Infinite ones are tokens that never come.
absl::Status CheckLogits(absl::Span<const float> logits);

}  // namespace specwire::verifier
