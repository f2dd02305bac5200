// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace specwire {

// Waits until `condition` holds; false if it does not within `limit`.
inline bool Eventually(const std::function<bool()>& condition,
                       absl::Duration limit = absl::Seconds(30)) {
  const absl::Time deadline = absl::Now() + limit;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Microseconds(500));
  }
  return true;
}

}  // namespace specwire
