// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "common/base/mutex.h"

namespace specwire::coordinator {

// A few threads for work that is too heavy, or may block too long, for gRPC's:
// tokenizing, asking nodes what they serve.
//
// Users take turns, whoever has posted how much, and small tasks go before
// large ones, of which one is let in after every kSmallInARow: a small task
// waits for one large task that runs, and those of its user and one of each
// other user in front of it, and no large task waits for ever.
//
// Thread safety: any thread.
// Lifetime: the destructor runs what is queued, then joins. It must not run
// inside a task.
class WorkerPool {
 public:
  // A task that holds more is large.
  static constexpr size_t kSmallBytes = 16 << 10;
  static constexpr int kSmallInARow = 16;

  // At most `max_queued` tasks wait, and what they hold is at most `max_bytes`
  // (one alone may be larger). Half of either is what one user may have.
  WorkerPool(std::string name,
             int num_threads,
             size_t max_queued,
             size_t max_bytes = std::numeric_limits<size_t>::max());
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False, and `task`, which holds about `num_bytes`, is dropped, if too many
  // wait already. Tasks of no user have no share to keep to.
  [[nodiscard]] bool Post(absl::AnyInvocable<void()> task,
                          size_t num_bytes = 0,
                          const std::string& user = "");

 private:
  struct Entry {
    absl::AnyInvocable<void()> task;
    size_t num_bytes = 0;
  };
  // What users have waiting, small or large, in the order of their turns.
  struct Lane {
    std::deque<std::string> turns;
    absl::flat_hash_map<std::string, std::deque<Entry>> queues;
  };
  struct Held {
    size_t num_tasks = 0;
    size_t num_bytes = 0;
  };

  void Run();
  bool HasRoom(const Held& held,
               size_t num_bytes,
               size_t max_queued,
               size_t max_bytes) const;
  // REQUIRES: something waits.
  absl::AnyInvocable<void()> TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string name_;
  const size_t max_queued_;
  const size_t max_bytes_;
  Mutex mutex_;
  CondVar wake_;
  Lane small_ ABSL_GUARDED_BY(mutex_);
  Lane large_ ABSL_GUARDED_BY(mutex_);
  // Small ones that have been taken since the last large one.
  int small_in_a_row_ ABSL_GUARDED_BY(mutex_) = 0;
  Held all_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Held> users_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace specwire::coordinator
