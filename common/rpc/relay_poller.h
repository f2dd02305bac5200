// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace specwire {

// What a thread that moves bytes waits for: descriptors that are ready, one
// timer, and calls of Wake().
//
// Thread safety: one thread, but for Wake().
class RelayPoller {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  RelayPoller() = default;
  ~RelayPoller();
  RelayPoller(const RelayPoller&) = delete;
  RelayPoller& operator=(const RelayPoller&) = delete;

  // First. UNAVAILABLE if the system has no descriptors left.
  absl::Status Open();

  // A descriptor that is watched. It stays where it is meanwhile.
  struct Watched {
    int fd = -1;
    // Of epoll. A descriptor for which there is nothing to wait for is taken
    // out: epoll tells of hang-ups whether they are asked for or not.
    uint32_t events = 0;
  };
  void Watch(Watched* watched, uint32_t events);
  // Wait() returns then, by RelayNowNs(), if not earlier.
  void SetTimer(int64_t due_ns);
  // Makes a Wait() return, now or next.
  void Wake();

  struct Event {
    Watched* watched = nullptr;
    uint32_t events = 0;
  };
  // Waits for any of them; returns what is ready, none if it was the timer or
  // Wake(). The result holds until the next call.
  absl::Span<const Event> Wait();

 private:
  static constexpr size_t kMaxEvents = 64;

  int epoll_ = -1;
  Watched timer_;
  int64_t timer_ns_ = kNever;
  // An eventfd.
  Watched wake_;
  std::array<epoll_event, kMaxEvents> ready_;
  std::array<Event, kMaxEvents> events_;
};

}  // namespace specwire
