// SPDX-License-Identifier: Apache-2.0
#include "common/base/timer.h"

#include <map>
#include <thread>
#include <unordered_map>
#include <utility>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread_name.h"

namespace specwire {

class TimerThread::Impl {
 public:
  explicit Impl(size_t max_pending)
      : max_pending_(max_pending), thread_([this] { Run(); }) {}

  ~Impl() {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }

  Id ScheduleAfter(absl::Duration delay, absl::AnyInvocable<void()> callback) {
    const absl::Time due = clock_.Now() + delay;
    MutexLock lock(&mutex_);
    if (queue_.size() >= max_pending_) return kNone;
    const Id id = next_id_++;
    const auto entry =
        queue_.emplace(std::make_pair(due, id), std::move(callback)).first;
    due_by_id_.emplace(id, due);
    if (entry == queue_.begin()) changed_.NotifyAll();
    return id;
  }

  bool Cancel(Id id) {
    // Destroyed without the lock: what it holds may do anything.
    absl::AnyInvocable<void()> callback;
    MutexLock lock(&mutex_);
    const auto due = due_by_id_.find(id);
    if (due == due_by_id_.end()) return false;
    const auto entry = queue_.find({due->second, id});
    callback = std::move(entry->second);
    queue_.erase(entry);
    due_by_id_.erase(due);
    return true;
  }

  size_t num_pending() const {
    MutexLock lock(&mutex_);
    return queue_.size();
  }

 private:
  void Run() {
    SetThreadName("timer");
    while (true) {
      absl::AnyInvocable<void()> callback;
      {
        MutexLock lock(&mutex_);
        if (!WaitForDue()) return;
        const auto entry = queue_.begin();
        callback = std::move(entry->second);
        due_by_id_.erase(entry->first.second);
        queue_.erase(entry);
      }
      callback();
    }
  }

  // Returns false if the thread is to end.
  bool WaitForDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (!stopping_) {
      if (queue_.empty()) {
        changed_.Wait(&mutex_);
        continue;
      }
      const absl::Duration left = queue_.begin()->first.first - clock_.Now();
      if (left <= absl::ZeroDuration()) return true;
      changed_.WaitFor(&mutex_, left);
    }
    return false;
  }

  const size_t max_pending_;
  const SteadyClock clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Id next_id_ ABSL_GUARDED_BY(mutex_) = kNone + 1;
  // By due time, then by id, which is the order of scheduling.
  std::map<std::pair<absl::Time, Id>, absl::AnyInvocable<void()>> queue_
      ABSL_GUARDED_BY(mutex_);
  std::unordered_map<Id, absl::Time> due_by_id_ ABSL_GUARDED_BY(mutex_);
  // Last: it uses all of the above.
  std::thread thread_;
};

TimerThread::TimerThread(size_t max_pending)
    : impl_(std::make_unique<Impl>(max_pending)) {}

TimerThread::~TimerThread() = default;

TimerThread::Id TimerThread::ScheduleAfter(
    absl::Duration delay, absl::AnyInvocable<void()> callback) {
  return impl_->ScheduleAfter(delay, std::move(callback));
}

TimerThread::Id TimerThread::Schedule(absl::Time deadline,
                                      absl::AnyInvocable<void()> callback) {
  return impl_->ScheduleAfter(deadline - absl::Now(), std::move(callback));
}

bool TimerThread::Cancel(Id id) { return impl_->Cancel(id); }

size_t TimerThread::num_pending() const { return impl_->num_pending(); }

}  // namespace specwire
