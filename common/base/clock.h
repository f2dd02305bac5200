// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

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

// The wall clock at its creation, then the steady clock: setting the machine's
// clock does not move it, so differences between two of its times can be
// trusted.
class SteadyClock final : public Clock {
 public:
  absl::Time Now() const override {
    return wall_start_ +
           absl::FromChrono(std::chrono::steady_clock::now() - start_);
  }

 private:
  const absl::Time wall_start_ = absl::Now();
  const std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
};

}  // namespace specwire
