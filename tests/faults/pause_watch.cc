// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/pause_watch.h"

#include "absl/time/clock.h"
#include "common/base/clock.h"

namespace specwire::faults {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);
constexpr absl::Duration kPause = absl::Seconds(1);

}  // namespace

PauseWatch::~PauseWatch() {
  stopping_ = true;
  thread_.join();
}

void PauseWatch::Watch() {
  const SteadyClock clock;
  absl::Time last = clock.Now();
  while (!stopping_) {
    absl::SleepFor(kTick);
    const absl::Time now = clock.Now();
    if (now - last > kPause) ++num_pauses_;
    last = now;
  }
}

}  // namespace specwire::faults
