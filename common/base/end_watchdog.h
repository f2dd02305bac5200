// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace specwire {

// Ends the process with exit code 1 unless it is destroyed in time: a process
// that is to end must not wait for ever for a thread that hangs.
class EndWatchdog {
 public:
  explicit EndWatchdog(absl::Duration limit);
  ~EndWatchdog();
  EndWatchdog(const EndWatchdog&) = delete;
  EndWatchdog& operator=(const EndWatchdog&) = delete;

 private:
  Mutex mutex_;
  CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace specwire
