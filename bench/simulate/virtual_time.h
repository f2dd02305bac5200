// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace specwire::simulate {

// A clock that jumps from event to event. Events of one time happen in the
// order in which they were set.
//
// Thread safety: one thread at a time.
class VirtualTime {
 public:
  VirtualTime() = default;
  VirtualTime(const VirtualTime&) = delete;
  VirtualTime& operator=(const VirtualTime&) = delete;

  absl::Time now() const { return now_; }
  // `what` happens at `time`, or now if that has passed.
  void At(absl::Time time, std::function<void()> what) {
    events_.push({std::max(time, now_), next_order_++, std::move(what)});
  }
  // Lets the next event happen; false if there is none.
  bool Step() {
    if (events_.empty()) return false;
    // The queue shows its top as constant, but does not look at `what`.
    std::function<void()> what =
        std::move(const_cast<Event&>(events_.top()).what);
    now_ = events_.top().at;
    events_.pop();
    what();
    return true;
  }

 private:
  struct Event {
    absl::Time at;
    int64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  absl::Time now_ = absl::UnixEpoch();
  int64_t next_order_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace specwire::simulate
