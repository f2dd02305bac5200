// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "common/base/mutex.h"

namespace specwire::coordinator {

// A few threads for work that is too heavy, or may block too long, for gRPC's:
// tokenizing, asking nodes what they serve.
//
// Thread safety: any thread.
// Lifetime: the destructor runs what is queued, then joins. It must not run
// inside a task.
class WorkerPool {
 public:
  // At most `max_queued` tasks wait, and what they hold is at most `max_bytes`
  // (one alone may be larger).
  WorkerPool(std::string name,
             int num_threads,
             size_t max_queued,
             size_t max_bytes = std::numeric_limits<size_t>::max());
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False, and `task`, which holds about `num_bytes`, is dropped, if too many
  // wait already.
  [[nodiscard]] bool Post(absl::AnyInvocable<void()> task,
                          size_t num_bytes = 0);

 private:
  struct Entry {
    absl::AnyInvocable<void()> task;
    size_t num_bytes = 0;
  };

  void Run();

  const std::string name_;
  const size_t max_queued_;
  const size_t max_bytes_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Entry> queue_ ABSL_GUARDED_BY(mutex_);
  size_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace specwire::coordinator
