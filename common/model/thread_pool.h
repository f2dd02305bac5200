// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
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
// A pass calls Run some hundred times, so Run costs about a microsecond while
// the workers are awake: idle workers watch for work for kSpinTime, which spans
// the gaps inside a pass, then sleep. Nobody waits for a worker that has no
// piece: where another process has its processor, the caller does the pieces
// itself, and waits only for one that was begun. Idle workers let whoever needs
// their processor have it, so that beside a busy process two threads are about
// as fast as one. With more threads than processors nobody watches at all.
//
// The workers' floating-point control is set (float_control.h); the caller sees
// to its own.
//
// Thread safety: Run on one thread at a time, and not from within a piece.
class ThreadPool {
 public:
  // How long an idle worker, or the caller when no piece is left, watches
  // before it sleeps.
  static constexpr std::chrono::microseconds kSpinTime{50};

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

  // Calls work(row) for every row in [0, num_rows): on the caller alone if they
  // are so few that handing them out costs more than it saves.
  // REQUIRES: as Run.
  void RunRows(int num_rows, absl::FunctionRef<void(int row)> work);

  // Workers that are asleep. For tests; true only at the moment it is taken.
  int num_asleep_for_test();

 private:
  using Work = absl::FunctionRef<void(int, int)>;
  // What two threads write at once lies on lines of its own.
  static constexpr size_t kCacheLine = 64;

  void WorkerLoop(int thread);
  // Returns when there may be a piece to take; false if the pool ends.
  bool WaitForWork();
  // Takes pieces until none is left.
  void TakePieces(int thread);
  // Returns when no piece is unfinished.
  void WaitForPieces();
  void SetError(std::exception_ptr error);

  const std::chrono::microseconds spin_time_;

  // The call's work: plain data, written by Run before it raises unclaimed_,
  // read only by a thread that has claimed a piece. Run cannot return before
  // that piece is finished, so a claim is never one of an earlier call, however
  // long ago the thread looked.
  alignas(kCacheLine) const Work* work_ = nullptr;
  int num_pieces_ = 0;
  // Pieces that nobody has taken; lowering it by one takes one.
  std::atomic<int> unclaimed_{0};

  // Pieces that are not done.
  alignas(kCacheLine) std::atomic<int> unfinished_{0};

  // Some worker sleeps, or is about to, and nobody has woken it since.
  alignas(kCacheLine) std::atomic<bool> workers_asleep_{false};
  std::atomic<bool> caller_asleep_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};

  Mutex mutex_;
  CondVar work_ready_;
  CondVar pieces_done_;
  int num_asleep_ ABSL_GUARDED_BY(mutex_) = 0;
  std::exception_ptr error_ ABSL_GUARDED_BY(mutex_);

  std::vector<std::thread> workers_;
};

}  // namespace specwire
