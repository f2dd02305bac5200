// SPDX-License-Identifier: Apache-2.0
#include "common/base/strand.h"

#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "common/base/mutex.h"

namespace specwire {

struct Strand::Core {
  Mutex mutex;
  CondVar idle;
  std::deque<Task> tasks ABSL_GUARDED_BY(mutex);
  // The thread that drains; nothing while idle.
  std::optional<std::thread::id> drainer ABSL_GUARDED_BY(mutex);
  bool closed ABSL_GUARDED_BY(mutex) = false;
};

Strand::Strand() : core_(std::make_shared<Core>()) {}

Strand::~Strand() { Close(); }

void Strand::Post(Task task) {
  // A copy: a task may destroy the strand.
  const std::shared_ptr<Core> core = core_;
  {
    MutexLock lock(&core->mutex);
    if (core->closed) return;
    core->tasks.push_back(std::move(task));
    if (core->drainer.has_value()) return;
    core->drainer = std::this_thread::get_id();
  }
  Drain(core);
}

void Strand::Drain(const std::shared_ptr<Core>& core) {
  while (true) {
    Task task;
    {
      MutexLock lock(&core->mutex);
      if (core->tasks.empty()) {
        core->drainer.reset();
        core->idle.NotifyAll();
        return;
      }
      task = std::move(core->tasks.front());
      core->tasks.pop_front();
    }
    task();
    // What the task holds goes here, still in turn and without the lock.
  }
}

void Strand::Close() {
  // Destroyed without the lock: what tasks hold may do anything.
  std::deque<Task> dropped;
  {
    MutexLock lock(&core_->mutex);
    core_->closed = true;
    dropped.swap(core_->tasks);
    if (core_->drainer == std::this_thread::get_id()) return;
    while (core_->drainer.has_value()) core_->idle.Wait(&core_->mutex);
  }
}

}  // namespace specwire
