// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/greedy.h"

#include <cstddef>

namespace specwire {

int32_t ArgMax(absl::Span<const float> logits) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    if (best < 0) {
      // The first number, however small; a comparison with NaN is false.
      if (logit == logit) best = static_cast<int32_t>(i);
    } else if (logit > logits[static_cast<size_t>(best)]) {
      best = static_cast<int32_t>(i);
    }
  }
  return best;
}

}  // namespace specwire
