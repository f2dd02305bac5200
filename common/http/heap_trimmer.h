// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace specwire {

// Gives the system back what the handling of requests has freed: the allocator
// keeps it, in many pieces, for threads that may never come again. It does so
// at most once a second, on a thread of its own, however many requests there
// are.
//
// Thread safety: any thread.
class HeapTrimmer {
 public:
  HeapTrimmer();
  ~HeapTrimmer();
  HeapTrimmer(const HeapTrimmer&) = delete;
  HeapTrimmer& operator=(const HeapTrimmer&) = delete;

  // A body of so many bytes, and all that was made of it, is free. The memory
  // is given back once that is much.
  void OnFreed(size_t bytes);

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  // Since the memory was given back.
  size_t freed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace specwire
