// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace specwire::cli {
namespace {

constexpr int kLookPeriodMs = 50;

int OpenSignalFd(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : signals) {
    sigaddset(&set, signal);
  }
  return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

}  // namespace

SignalSource::SignalSource(std::initializer_list<int> signals)
    : fd_(OpenSignalFd(signals)) {}

SignalSource::~SignalSource() {
  if (fd_ >= 0) close(fd_);
}

std::optional<int> SignalSource::Take() {
  signalfd_siginfo info;
  if (read(fd_, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) {
    return std::nullopt;
  }
  return static_cast<int>(info.ssi_signo);
}

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
    if (signals_.Take().has_value()) {
      interrupted_ = true;
      function_();
    }
  }
}

}  // namespace specwire::cli
