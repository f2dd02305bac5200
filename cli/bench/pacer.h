// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <vector>

#include "absl/time/time.h"

namespace specwire::cli::bench {

// Points of time at which users send requests: gaps of a gamma distribution
// with the mean 1 / rate. Burstiness is its shape: 1 makes arrivals Poisson,
// less makes them come in bursts, more makes them even. The first arrival comes
// after a gap, too. The same seed gives the same points.
//
// Thread safety: one thread.
class Arrivals {
 public:
  // REQUIRES: rate and burstiness are positive.
  Arrivals(double rate, double burstiness, uint64_t seed);

  // Since the start; never less than the one before.
  absl::Duration Next();

 private:
  std::mt19937_64 random_;
  std::gamma_distribution<double> gap_seconds_;
  double seconds_ = 0;
};

// Decides when requests start. Times are durations since one start.
//
// Thread safety: one thread.
class Pacer {
 public:
  virtual ~Pacer() = default;
  // When the next request may start; nothing: not before one has ended.
  virtual std::optional<absl::Duration> NextStart() = 0;
  // One starts at `now`. Returns when it was meant to; what it waits from then
  // on is part of its latency. REQUIRES: NextStart() is not later than `now`.
  virtual absl::Duration Start(absl::Duration now) = 0;
  // One has ended.
  virtual void End(absl::Duration now, bool failed) = 0;
};

// A closed loop: each worker sends its next request when its last one has
// ended, so a slow cluster gets fewer of them. A worker whose request failed
// pauses first: refusals must not make it spin.
std::unique_ptr<Pacer> MakeClosedLoop(int num_workers,
                                      absl::Duration pause_after_failure);

// An open loop: requests come when they come. Those beyond `max_in_flight`
// wait.
std::unique_ptr<Pacer> MakeOpenLoop(Arrivals arrivals, int max_in_flight);

}  // namespace specwire::cli::bench
