// SPDX-License-Identifier: Apache-2.0
#include "common/base/signals.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>

#include <pthread.h>
#include <unistd.h>

#include "absl/time/clock.h"

namespace specwire {
namespace {

sigset_t ShutdownSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void BlockShutdownSignals() {
  const sigset_t set = ShutdownSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

std::optional<int> WaitForShutdownSignal(absl::Duration timeout) {
  const sigset_t set = ShutdownSignals();
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    // A day is for ever: the loop waits again.
    const absl::Duration left = std::clamp(
        deadline - absl::Now(), absl::ZeroDuration(), absl::Hours(24));
    const timespec wait = absl::ToTimespec(left);
    const int signal_number = sigtimedwait(&set, nullptr, &wait);
    if (signal_number > 0) return signal_number;
    if (errno == EAGAIN && absl::Now() >= deadline) return std::nullopt;
  }
}

void UnblockShutdownSignals() {
  const sigset_t set = ShutdownSignals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void RequestShutdown() { kill(getpid(), SIGTERM); }

}  // namespace specwire
