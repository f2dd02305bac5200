// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/time/time.h"
#include "bench/simulate/random.h"
#include "bench/simulate/virtual_time.h"

namespace specwire::simulate {

// How long a message travels: `one_way`, and on top of it a time that is drawn
// anew for each, exponentially distributed with mean `jitter`.
struct LinkDelay {
  absl::Duration one_way = {};
  absl::Duration jitter = {};
};

// One direction of a stream: messages arrive in the order in which they were
// sent.
class Link {
 public:
  Link(VirtualTime* time, Random* random, const LinkDelay& delay)
      : time_(time), random_(random), delay_(delay) {}

  void Send(std::function<void()> deliver) {
    absl::Time at = time_->now() + delay_.one_way;
    if (delay_.jitter > absl::ZeroDuration()) {
      at += delay_.jitter * random_->Exponential();
    }
    last_ = std::max(last_, at);
    time_->At(last_, std::move(deliver));
  }

 private:
  VirtualTime* const time_;
  Random* const random_;
  const LinkDelay delay_;
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace specwire::simulate
