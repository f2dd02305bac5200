// SPDX-License-Identifier: Apache-2.0
#include "common/model/thread_pool.h"

#include <utility>

namespace specwire {
namespace {

// The pieces of a pass follow each other within microseconds, and waking a
// sleeping thread takes tens of them; but a thread that spins on takes a core
// from the other processes of a small machine.
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  for (int thread = 1; thread < num_threads; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(&mutex_);
    stop_.store(true);
    wake_.NotifyAll();
  }
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
  next_piece_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  {
    MutexLock lock(&mutex_);
    generation_.fetch_add(1, std::memory_order_release);
    wake_.NotifyAll();
  }
  TakePieces(work, num_pieces, 0);
  while (busy_.load(std::memory_order_acquire) != 0) {
    for (int i = 0; i < kSpins && busy_.load() != 0; ++i) {
      Pause();
    }
    std::this_thread::yield();
  }
  MutexLock lock(&mutex_);
  if (error_ != nullptr) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void ThreadPool::WorkerLoop(int thread) {
  uint64_t seen = 0;
  while (true) {
    for (int i = 0; i < kSpins && generation_.load() == seen; ++i) {
      Pause();
    }
    if (generation_.load() == seen) {
      MutexLock lock(&mutex_);
      while (generation_.load() == seen && !stop_.load()) {
        wake_.Wait(&mutex_);
      }
    }
    if (stop_.load()) {
      return;
    }
    // Run waits for every worker, so that no call is ever missed.
    ++seen;
    TakePieces(*work_, num_pieces_, thread);
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::TakePieces(Work work, int num_pieces, int thread) {
  try {
    while (true) {
      const int piece = next_piece_.fetch_add(1, std::memory_order_relaxed);
      if (piece >= num_pieces) {
        return;
      }
      work(piece, thread);
    }
  } catch (...) {
    next_piece_.store(num_pieces, std::memory_order_relaxed);
    Fail(std::current_exception());
  }
}

void ThreadPool::Fail(std::exception_ptr error) {
  MutexLock lock(&mutex_);
  if (error_ == nullptr) {
    error_ = std::move(error);
  }
}

}  // namespace specwire
