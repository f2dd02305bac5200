// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "common/base/mutex.h"

namespace specwire {

// A few threads that share the work of one forward pass. libtorch's own pool is
// not used: it splits a sum differently for different numbers of threads, which
// shows in the last bits. Here the caller cuts the work into pieces that do not
// depend on the number of threads, and each piece is computed by one of them.
//
// Thread safety: Run on one thread at a time.
class ThreadPool {
 public:
  // The caller of Run is one of the `num_threads`.
  // REQUIRES: num_threads >= 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(piece, thread) for every piece in [0, num_pieces), in any order,
  // on threads numbered from 0, and returns when all are done. An exception
  // that a piece throws is rethrown here; other pieces may then be left out.
  void Run(int num_pieces, absl::FunctionRef<void(int piece, int thread)> work);

 private:
  using Work = absl::FunctionRef<void(int, int)>;

  void WorkerLoop(int thread);
  // Takes pieces until none is left.
  void TakePieces(Work work, int num_pieces, int thread);
  void Fail(std::exception_ptr error);

  Mutex mutex_;
  CondVar wake_;
  // Counts calls of Run; a worker works once for each. Changed under mutex_,
  // but read without it by workers that still spin.
  std::atomic<uint64_t> generation_{0};
  std::atomic<bool> stop_{false};
  // The current call's work; set before generation_ is raised.
  const Work* work_ = nullptr;
  int num_pieces_ = 0;
  std::atomic<int> next_piece_{0};
  // Workers that have not finished the current call.
  std::atomic<int> busy_{0};
  std::exception_ptr error_ ABSL_GUARDED_BY(mutex_);

  std::vector<std::thread> workers_;
};

}  // namespace specwire
