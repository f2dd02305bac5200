// SPDX-License-Identifier: Apache-2.0
#include "common/model/thread_pool.h"

#include <sched.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/processors.h"
#include "common/base/thread_name.h"
#include "common/model/float_control.h"

namespace specwire {
namespace {

// Tells the processor that this is a waiting loop.
void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Watches until done() or for the time given; returns done(). In time rather
// than in rounds: a pause takes from 10 to 150 cycles, and a thread that lost
// its processor meanwhile should sleep at once. `between` is called about every
// microsecond.
template <typename Done, typename Between>
bool SpinUntil(std::chrono::microseconds limit,
               const Done& done,
               const Between& between) {
  using Clock = std::chrono::steady_clock;
  // So that reading the clock costs little.
  constexpr int kRoundsPerReading = 16;
  if (limit.count() == 0) return done();
  std::optional<Clock::time_point> end;
  while (true) {
    for (int round = 0; round < kRoundsPerReading; ++round) {
      if (done()) return true;
      Pause();
    }
    between();
    const Clock::time_point now = Clock::now();
    if (!end.has_value()) {
      end = now + limit;
    } else if (now >= *end) {
      return done();
    }
  }
}

}  // namespace

// Sleeping and waking, for workers and caller alike: the sleeper raises its
// flag and then looks once more whether there is cause to sleep; the waker
// makes the cause go and then looks at the flag. Both in sequentially
// consistent order, so at least one sees the other. The mutex makes sure that a
// sleeper whose flag was seen already waits when it is notified.

ThreadPool::ThreadPool(int num_threads)
    : spin_time_(num_threads > UsableProcessors() ? std::chrono::microseconds(0)
                                                  : kSpinTime) {
  for (int thread = 1; thread < num_threads; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(&mutex_);
    stop_.store(true);
  }
  work_ready_.NotifyAll();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

void ThreadPool::Run(int num_pieces, Work work) {
  if (workers_.empty() || num_pieces <= 1) {
    for (int piece = 0; piece < num_pieces; ++piece) {
      work(piece, 0);
    }
    return;
  }
  work_ = &work;
  num_pieces_ = num_pieces;
  unfinished_.store(num_pieces, std::memory_order_relaxed);
  unclaimed_.store(num_pieces);
  // One notification each time they fell asleep, not one for each call until
  // they are awake.
  if (workers_asleep_.load() && workers_asleep_.exchange(false)) {
    { MutexLock lock(&mutex_); }
    work_ready_.NotifyAll();
  }
  TakePieces(0);
  WaitForPieces();
  if (failed_.load(std::memory_order_relaxed)) {
    failed_.store(false, std::memory_order_relaxed);
    MutexLock lock(&mutex_);
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void ThreadPool::RunRows(int num_rows, absl::FunctionRef<void(int row)> work) {
  constexpr int kRowsWorthSharing = 8;
  if (num_rows < kRowsWorthSharing) {
    for (int row = 0; row < num_rows; ++row) {
      work(row);
    }
    return;
  }
  const int pieces = std::min(num_rows, 4 * num_threads());
  Run(pieces, [&](int piece, int) {
    const int end = num_rows * (piece + 1) / pieces;
    for (int row = num_rows * piece / pieces; row < end; ++row) {
      work(row);
    }
  });
}

void ThreadPool::WorkerLoop(int thread) {
  SetThreadName(absl::StrCat("pool-", thread).c_str());
  SetFloatControl();
  while (WaitForWork()) {
    TakePieces(thread);
  }
}

bool ThreadPool::WaitForWork() {
  const auto has_cause = [this] {
    return unclaimed_.load() != 0 || stop_.load();
  };
  // Yielding costs nothing on a free processor. On a shared one it lets others
  // compute: the caller, which the scheduler may well put on the same one when
  // another process is busy, or that process, which would take its time slice
  // later, in the midst of a piece.
  if (!SpinUntil(spin_time_, has_cause, [] { sched_yield(); })) {
    MutexLock lock(&mutex_);
    workers_asleep_.store(true);
    ++num_asleep_;
    while (!has_cause()) {
      work_ready_.Wait(&mutex_);
      // For as long as it sleeps on: another worker may have taken the last
      // piece first.
      workers_asleep_.store(true);
    }
    if (--num_asleep_ == 0) workers_asleep_.store(false);
  }
  return !stop_.load();
}

void ThreadPool::TakePieces(int thread) {
  int num_finished = 0;
  int unclaimed = unclaimed_.load(std::memory_order_relaxed);
  while (unclaimed > 0) {
    if (!unclaimed_.compare_exchange_weak(unclaimed,
                                          unclaimed - 1,
                                          std::memory_order_acquire,
                                          std::memory_order_relaxed)) {
      continue;
    }
    ++num_finished;
    try {
      (*work_)(num_pieces_ - unclaimed, thread);
    } catch (...) {
      SetError(std::current_exception());
      // What nobody has begun is left out.
      num_finished += unclaimed_.exchange(0, std::memory_order_relaxed);
    }
    unclaimed = unclaimed_.load(std::memory_order_relaxed);
  }
  // In one step: the call cannot end before these are counted.
  if (num_finished == 0) return;
  const bool is_last = unfinished_.fetch_sub(num_finished) == num_finished;
  if (is_last && thread != 0 && caller_asleep_.load()) {
    { MutexLock lock(&mutex_); }
    pieces_done_.NotifyOne();
  }
}

void ThreadPool::WaitForPieces() {
  const auto is_done = [this] { return unfinished_.load() == 0; };
  // Here yielding would give away a time slice for what takes microseconds.
  if (SpinUntil(spin_time_, is_done, [] {})) return;
  // A piece is long, or its worker has lost the processor. Asleep, the caller
  // leaves its own to whoever needs it.
  MutexLock lock(&mutex_);
  caller_asleep_.store(true);
  while (!is_done()) {
    pieces_done_.Wait(&mutex_);
  }
  caller_asleep_.store(false);
}

void ThreadPool::SetError(std::exception_ptr error) {
  MutexLock lock(&mutex_);
  if (error_ == nullptr) {
    error_ = std::move(error);
  }
  failed_.store(true, std::memory_order_relaxed);
}

int ThreadPool::num_asleep_for_test() {
  MutexLock lock(&mutex_);
  return num_asleep_;
}

}  // namespace specwire
