// SPDX-License-Identifier: Apache-2.0
#include "coordinator/worker_pool.h"

#include <utility>

#include "common/base/thread_name.h"

namespace specwire::coordinator {

WorkerPool::WorkerPool(std::string name,
                       int num_threads,
                       size_t max_queued,
                       size_t max_bytes)
    : name_(std::move(name)), max_queued_(max_queued), max_bytes_(max_bytes) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

WorkerPool::~WorkerPool() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::Post(absl::AnyInvocable<void()> task, size_t num_bytes) {
  {
    MutexLock lock(&mutex_);
    if (queue_.size() >= max_queued_) return false;
    if (num_bytes_ > 0 &&
        (num_bytes > max_bytes_ || num_bytes_ > max_bytes_ - num_bytes)) {
      return false;
    }
    num_bytes_ += num_bytes;
    queue_.push_back({std::move(task), num_bytes});
  }
  wake_.NotifyOne();
  return true;
}

void WorkerPool::Run() {
  SetThreadName(name_.c_str());
  while (true) {
    absl::AnyInvocable<void()> task;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stopping_) wake_.Wait(&mutex_);
      if (queue_.empty()) return;
      task = std::move(queue_.front().task);
      num_bytes_ -= queue_.front().num_bytes;
      queue_.pop_front();
    }
    task();
  }
}

}  // namespace specwire::coordinator
