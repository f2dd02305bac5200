// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace specwire {

// std::mutex with Clang's thread-safety attributes. Not absl::Mutex: the
// packaged library is not instrumented, and ThreadSanitizer then reports races
// that do not exist.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a Mutex for a scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// A condition variable for Mutex. Waits may wake without cause: call them in a
// loop that tests the condition.
class CondVar {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // Returns false if `deadline` passed.
  bool WaitUntil(Mutex* mutex, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    bool woken = true;
    if (deadline == absl::InfiniteFuture()) {
      cv_.wait(lock);
    } else {
      woken = cv_.wait_until(lock, absl::ToChronoTime(deadline)) ==
              std::cv_status::no_timeout;
    }
    lock.release();
    return woken;
  }
  // The same for a duration on the steady clock: setting the machine's clock
  // neither shortens nor lengthens it.
  bool WaitFor(Mutex* mutex, absl::Duration duration)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    // An hour is for ever: loops call again.
    duration = std::min(duration, absl::Hours(1));
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    bool woken = cv_.wait_for(lock, absl::ToChronoNanoseconds(duration)) ==
                 std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace specwire
