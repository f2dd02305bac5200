// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

namespace specwire {

// One thread that runs callbacks when their time has come: deadlines,
// heartbeats, reconnects. It counts on the steady clock, so setting the
// machine's clock neither fires nor delays anything.
//
// Callbacks run on the thread one after another and must be short; post to a
// strand for anything more.
//
// Thread safety: any thread, callbacks included.
// Lifetime: the destructor drops pending callbacks and waits for the one that
// runs. It must not run inside a callback.
class TimerThread {
 public:
  using Id = uint64_t;
  // What Schedule returns if too many callbacks are pending.
  static constexpr Id kNone = 0;

  explicit TimerThread(size_t max_pending = 1 << 20);
  ~TimerThread();
  TimerThread(const TimerThread&) = delete;
  TimerThread& operator=(const TimerThread&) = delete;

  // Runs `callback` after `delay`; at once (on the timer's thread) if it is not
  // positive, never if it is infinite. Callbacks due at the same time run in
  // the order in which they were scheduled. Returns kNone, and drops the
  // callback, if `max_pending` callbacks are pending.
  Id ScheduleAfter(absl::Duration delay, absl::AnyInvocable<void()> callback);
  // The same for a point of the wall clock, as it stands now.
  Id Schedule(absl::Time deadline, absl::AnyInvocable<void()> callback);

  // Drops a callback. Returns true if it was pending and will not run; false if
  // it has run, is running, or `id` is unknown. Does not wait for it.
  bool Cancel(Id id);

  // Callbacks that are pending.
  size_t num_pending() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace specwire
