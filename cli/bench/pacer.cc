// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/pacer.h"

#include <utility>

namespace specwire::cli::bench {
namespace {

class ClosedLoop final : public Pacer {
 public:
  ClosedLoop(int num_workers, absl::Duration pause_after_failure)
      : pause_after_failure_(pause_after_failure) {
    for (int i = 0; i < num_workers; ++i) free_.push(absl::ZeroDuration());
  }

  std::optional<absl::Duration> NextStart() override {
    if (free_.empty()) return std::nullopt;
    return free_.top();
  }

  absl::Duration Start(absl::Duration now) override {
    free_.pop();
    return now;
  }

  void End(absl::Duration now, bool failed) override {
    free_.push(failed ? now + pause_after_failure_ : now);
  }

 private:
  const absl::Duration pause_after_failure_;
  // From when on each idle worker may start, earliest first.
  std::priority_queue<absl::Duration,
                      std::vector<absl::Duration>,
                      std::greater<absl::Duration>>
      free_;
};

class OpenLoop final : public Pacer {
 public:
  OpenLoop(Arrivals arrivals, int max_in_flight)
      : arrivals_(std::move(arrivals)),
        max_in_flight_(max_in_flight),
        next_(arrivals_.Next()) {}

  std::optional<absl::Duration> NextStart() override {
    if (in_flight_ >= max_in_flight_) return std::nullopt;
    return next_;
  }

  absl::Duration Start(absl::Duration /*now*/) override {
    ++in_flight_;
    return std::exchange(next_, arrivals_.Next());
  }

  void End(absl::Duration /*now*/, bool /*failed*/) override { --in_flight_; }

 private:
  Arrivals arrivals_;
  const int max_in_flight_;
  absl::Duration next_;
  int in_flight_ = 0;
};

}  // namespace

Arrivals::Arrivals(double rate, double burstiness, uint64_t seed)
    : random_(seed), gap_seconds_(burstiness, 1 / (rate * burstiness)) {}

absl::Duration Arrivals::Next() {
  seconds_ += gap_seconds_(random_);
  return absl::Seconds(seconds_);
}

std::unique_ptr<Pacer> MakeClosedLoop(int num_workers,
                                      absl::Duration pause_after_failure) {
  return std::make_unique<ClosedLoop>(num_workers, pause_after_failure);
}

std::unique_ptr<Pacer> MakeOpenLoop(Arrivals arrivals, int max_in_flight) {
  return std::make_unique<OpenLoop>(std::move(arrivals), max_in_flight);
}

}  // namespace specwire::cli::bench
