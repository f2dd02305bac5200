// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"

namespace specwire {

// A serial executor: tasks run in the order they were posted, one at a time. It
// owns no thread: a thread that posts to an idle strand runs the tasks itself,
// until none is left. State that only tasks of one strand touch needs no lock.
//
// Thread safety: any thread, tasks of the strand included.
// Lifetime: Close() (or the destructor) drops the tasks that have not begun and
// waits for the one that runs, unless that task is the caller: then it returns
// at once. After it has returned no other task runs, and posting does nothing.
// So an object may own a strand whose tasks refer to the object.
class Strand {
 public:
  using Task = absl::AnyInvocable<void()>;

  Strand();
  ~Strand();
  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;

  // Runs `task`, and what others post meanwhile, before it returns if the
  // strand is idle; else leaves it to the thread that is at work.
  // REQUIRES: the caller holds no lock that a task of this strand takes.
  void Post(Task task);

  // See above. REQUIRES: the caller holds no lock that a task takes, and no
  // task that may be running waits for the caller.
  void Close();

 private:
  struct Core;
  static void Drain(const std::shared_ptr<Core>& core);

  // Shared with the thread that drains it, because a task may destroy the
  // strand.
  const std::shared_ptr<Core> core_;
};

}  // namespace specwire
