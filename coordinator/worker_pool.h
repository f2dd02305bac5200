// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
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
  WorkerPool(std::string name, int num_threads, size_t max_queued);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False, and `task` is dropped, if max_queued tasks wait already.
  [[nodiscard]] bool Post(absl::AnyInvocable<void()> task);

 private:
  void Run();

  const std::string name_;
  const size_t max_queued_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<absl::AnyInvocable<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace specwire::coordinator
