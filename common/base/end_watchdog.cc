// SPDX-License-Identifier: Apache-2.0
#include "common/base/end_watchdog.h"

#include <cstdlib>

#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/thread_name.h"

namespace specwire {

EndWatchdog::EndWatchdog(absl::Duration limit)
    : thread_([this, limit] {
        SetThreadName("end_watchdog");
        const SteadyClock clock;
        const absl::Time deadline = clock.Now() + limit;
        MutexLock lock(&mutex_);
        while (!done_) {
          const absl::Duration left = deadline - clock.Now();
          if (left <= absl::ZeroDuration()) {
            SPECWIRE_LOG(Error,
                         "did not end within ",
                         absl::FormatDuration(limit),
                         ": something hangs");
            std::_Exit(1);
          }
          changed_.WaitFor(&mutex_, left);
        }
      }) {}

EndWatchdog::~EndWatchdog() {
  {
    MutexLock lock(&mutex_);
    done_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

}  // namespace specwire
