// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace specwire {

// Where time comes from, so that tests can set it.
// Thread safety: any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

// The machine's wall clock.
class RealClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

}  // namespace specwire
