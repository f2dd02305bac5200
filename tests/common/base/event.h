// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/base/mutex.h"

namespace specwire {

// Something that happens once, and that threads wait for. Made of std::mutex,
// which ThreadSanitizer understands; absl::Notification, as packaged, gives
// reports of races that do not exist.
class Event {
 public:
  void Notify() {
    MutexLock lock(&mutex_);
    happened_ = true;
    changed_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(&mutex_);
    while (!happened_) changed_.Wait(&mutex_);
  }
  // Returns false if it has not happened within half a minute.
  bool WaitOrGiveUp() {
    MutexLock lock(&mutex_);
    if (!happened_) changed_.WaitFor(&mutex_, absl::Seconds(30));
    return happened_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool happened_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace specwire
