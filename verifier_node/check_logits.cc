// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/check_logits.h"

#include <algorithm>
#include <cmath>

namespace specwire::verifier {

absl::Status CheckLogits(absl::Span<const float> logits) {
  if (std::any_of(logits.begin(), logits.end(), [](float logit) {
        return std::isnan(logit);
      })) {
    return absl::InternalError("the model's logits are not numbers");
  }
  return absl::OkStatus();
}

}  // namespace specwire::verifier
