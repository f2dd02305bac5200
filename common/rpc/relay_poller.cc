// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/relay_poller.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace specwire {

RelayPoller::~RelayPoller() {
  for (const int fd : {timer_.fd, wake_.fd, epoll_}) {
    if (fd >= 0) close(fd);
  }
}

absl::Status RelayPoller::Open() {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  timer_.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  wake_.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (epoll_ < 0 || timer_.fd < 0 || wake_.fd < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot relay: ", std::strerror(errno)));
  }
  Watch(&timer_, EPOLLIN);
  Watch(&wake_, EPOLLIN);
  return absl::OkStatus();
}

void RelayPoller::Watch(Watched* watched, uint32_t events) {
  if (watched->events == events) return;
  epoll_event event = {};
  event.events = events;
  event.data.ptr = watched;
  const int operation = watched->events == 0 ? EPOLL_CTL_ADD
                        : events == 0        ? EPOLL_CTL_DEL
                                             : EPOLL_CTL_MOD;
  epoll_ctl(epoll_, operation, watched->fd, &event);
  watched->events = events;
}

void RelayPoller::SetTimer(int64_t due_ns) {
  if (due_ns == timer_ns_) return;
  timer_ns_ = due_ns;
  itimerspec time = {};
  if (due_ns != kNever) {
    time.it_value.tv_sec = due_ns / 1'000'000'000;
    time.it_value.tv_nsec = due_ns % 1'000'000'000;
  }
  timerfd_settime(timer_.fd, TFD_TIMER_ABSTIME, &time, nullptr);
}

void RelayPoller::Wake() {
  const uint64_t one = 1;
  // Fails only where the thread is to wake already.
  [[maybe_unused]] const ssize_t written = write(wake_.fd, &one, sizeof(one));
}

absl::Span<const RelayPoller::Event> RelayPoller::Wait() {
  const int count =
      epoll_wait(epoll_, ready_.data(), static_cast<int>(kMaxEvents), -1);
  size_t num_events = 0;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready_[static_cast<size_t>(i)];
    auto* const watched = static_cast<Watched*>(event.data.ptr);
    if (watched == &timer_ || watched == &wake_) {
      uint64_t number = 0;
      [[maybe_unused]] const ssize_t bytes =
          read(watched->fd, &number, sizeof(number));
      if (watched == &timer_) timer_ns_ = kNever;
      continue;
    }
    events_[num_events++] = {watched, event.events};
  }
  return absl::MakeConstSpan(events_.data(), num_events);
}

}  // namespace specwire
