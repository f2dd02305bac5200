// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/on_interrupt.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "common/base/signals.h"

namespace specwire::cli::bench {

OnInterrupt::OnInterrupt(std::function<void()> function)
    : function_(std::move(function)),
      signals_({SIGINT, SIGTERM}),
      stop_fd_(eventfd(0, EFD_CLOEXEC)) {
  thread_ = std::thread([this] { Watch(); });
}

OnInterrupt::~OnInterrupt() {
  const uint64_t one = 1;
  // Cannot fail: the counter is far from full.
  [[maybe_unused]] const ssize_t written = write(stop_fd_, &one, sizeof(one));
  thread_.join();
  close(stop_fd_);
}

void OnInterrupt::Watch() {
  pollfd fds[2] = {{signals_.fd(), POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  while ((fds[1].revents & POLLIN) == 0) {
    poll(fds, 2, -1);
    if (!interrupted_ && signals_.Take().has_value()) {
      interrupted_ = true;
      // Here alone, so that the next one arrives in this thread.
      UnblockShutdownSignals();
      function_();
    }
  }
}

}  // namespace specwire::cli::bench
