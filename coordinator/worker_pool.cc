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

bool WorkerPool::HasRoom(const Held& held,
                         size_t num_bytes,
                         size_t max_queued,
                         size_t max_bytes) const {
  if (held.num_tasks >= max_queued) return false;
  return held.num_bytes == 0 ||
         (num_bytes <= max_bytes && held.num_bytes <= max_bytes - num_bytes);
}

bool WorkerPool::Post(absl::AnyInvocable<void()> task,
                      size_t num_bytes,
                      const std::string& user) {
  {
    MutexLock lock(&mutex_);
    if (!HasRoom(all_, num_bytes, max_queued_, max_bytes_)) return false;
    if (!user.empty()) {
      const auto held = users_.find(user);
      if (held != users_.end() &&
          !HasRoom(held->second, num_bytes, max_queued_ / 2, max_bytes_ / 2)) {
        return false;
      }
    }
    for (Held* held : {&all_, &users_[user]}) {
      ++held->num_tasks;
      held->num_bytes += num_bytes;
    }
    Lane& lane = num_bytes > kSmallBytes ? large_ : small_;
    std::deque<Entry>& queue = lane.queues[user];
    if (queue.empty()) lane.turns.push_back(user);
    queue.push_back({std::move(task), num_bytes});
  }
  wake_.NotifyOne();
  return true;
}

absl::AnyInvocable<void()> WorkerPool::TakeNext() {
  const bool takes_large =
      small_.turns.empty() ||
      (small_in_a_row_ >= kSmallInARow && !large_.turns.empty());
  small_in_a_row_ = takes_large ? 0 : small_in_a_row_ + 1;
  Lane& lane = takes_large ? large_ : small_;
  const std::string user = std::move(lane.turns.front());
  lane.turns.pop_front();
  const auto queue = lane.queues.find(user);
  Entry entry = std::move(queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) {
    lane.queues.erase(queue);
  } else {
    lane.turns.push_back(user);
  }
  const auto held = users_.find(user);
  for (Held* one : {&all_, &held->second}) {
    --one->num_tasks;
    one->num_bytes -= entry.num_bytes;
  }
  if (held->second.num_tasks == 0) users_.erase(held);
  return std::move(entry.task);
}

void WorkerPool::Run() {
  SetThreadName(name_.c_str());
  while (true) {
    absl::AnyInvocable<void()> task;
    {
      MutexLock lock(&mutex_);
      while (all_.num_tasks == 0 && !stopping_) wake_.Wait(&mutex_);
      if (all_.num_tasks == 0) return;
      task = TakeNext();
    }
    task();
  }
}

}  // namespace specwire::coordinator
