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
namespace {

constexpr int kLookPeriodMs = 50;

}  // namespace

OnInterrupt::OnInterrupt(std::function<void()> function)
    : function_(std::move(function)),
      signals_({SIGINT, SIGTERM}),
      stop_fd_(eventfd(0, EFD_CLOEXEC)) {
  thread_ = std::thread([this] { Watch(); });
}

OnInterrupt::~OnInterrupt() {
  stopping_ = true;
  const uint64_t one = 1;
  // Cannot fail: the counter is far from full.
  [[maybe_unused]] const ssize_t written = write(stop_fd_, &one, sizeof(one));
  thread_.join();
  if (stop_fd_ >= 0) close(stop_fd_);
}

void OnInterrupt::Watch() {
  pollfd fds[2] = {{signals_.fd(), POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  while (!stopping_) {
    // A process that had no descriptor left has nothing that would wake it.
    poll(fds, 2, stop_fd_ >= 0 ? -1 : kLookPeriodMs);
    if (!interrupted_ && signals_.Take().has_value()) {
      interrupted_ = true;
      // Here alone, so that the next one arrives in this thread.
      UnblockShutdownSignals();
      function_();
    }
  }
}

}  // namespace specwire::cli::bench
