// SPDX-License-Identifier: Apache-2.0
#include "common/model/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/model/float_control.h"

namespace specwire {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

// Calls Run with a piece for each thread, each of which calls `work` when all
// threads have one.
void RunOnAllThreads(ThreadPool* pool,
                     absl::FunctionRef<void(int thread)> work) {
  std::atomic<int> missing{pool->num_threads()};
  pool->Run(pool->num_threads(), [&](int, int thread) {
    --missing;
    while (missing > 0) std::this_thread::yield();
    work(thread);
  });
}

// Waits until all workers sleep; the test's time-out is the limit.
void AwaitSleep(ThreadPool* pool) {
  while (pool->num_asleep_for_test() < pool->num_threads() - 1) {
    absl::SleepFor(absl::Milliseconds(1));
  }
}

TEST_P(ThreadPoolTest, DoesEveryPieceOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.num_threads(), GetParam());
  for (int call = 0; call < 5000; ++call) {
    const int pieces = call % 9;
    std::vector<std::atomic<int>> done(9);
    pool.Run(pieces, [&](int piece, int thread) {
      EXPECT_GE(thread, 0);
      EXPECT_LT(thread, GetParam());
      ++done[static_cast<size_t>(piece)];
    });
    for (int piece = 0; piece < 9; ++piece) {
      ASSERT_EQ(done[static_cast<size_t>(piece)], piece < pieces ? 1 : 0);
    }
  }
}

TEST_P(ThreadPoolTest, ShowsTheCallerWhatThePiecesWrote) {
  ThreadPool pool(GetParam());
  std::vector<int> values(64);
  for (int call = 0; call < 2000; ++call) {
    pool.Run(64, [&](int piece, int thread) {
      values[static_cast<size_t>(piece)] += piece + call;
      // Now and then a thread is away while the others go on.
      if ((piece + call) % 31 == thread) std::this_thread::yield();
    });
  }
  for (int piece = 0; piece < 64; ++piece) {
    EXPECT_EQ(values[static_cast<size_t>(piece)], 2000 * piece + 1999000);
  }
}

TEST_P(ThreadPoolTest, GivesAllThreadsWorkAtOnce) {
  ThreadPool pool(GetParam());
  for (int call = 0; call < 100; ++call) {
    if (call % 10 == 0) AwaitSleep(&pool);
    std::vector<std::atomic<int>> pieces(static_cast<size_t>(GetParam()));
    RunOnAllThreads(&pool,
                    [&](int thread) { ++pieces[static_cast<size_t>(thread)]; });
    for (const std::atomic<int>& count : pieces) ASSERT_EQ(count, 1);
  }
}

TEST_P(ThreadPoolTest, SleepsWhileThereIsNoWork) {
  ThreadPool pool(GetParam());
  for (int call = 0; call < 20; ++call) {
    AwaitSleep(&pool);
    std::atomic<int> sum{0};
    pool.Run(100, [&](int piece, int) { sum += piece; });
    EXPECT_EQ(sum, 4950);
  }
}

TEST_P(ThreadPoolTest, WaitsForALatePiece) {
  ThreadPool pool(GetParam());
  for (int call = 0; call < 10; ++call) {
    std::atomic<int> done{0};
    RunOnAllThreads(&pool, [&](int thread) {
      // Long enough for the caller to fall asleep; nothing depends on it.
      if (thread != 0) absl::SleepFor(100 * absl::FromChrono(pool.kSpinTime));
      ++done;
    });
    ASSERT_EQ(done, GetParam());
  }
}

TEST_P(ThreadPoolTest, RethrowsWhatAPieceThrows) {
  ThreadPool pool(GetParam());
  for (int call = 0; call < 200; ++call) {
    EXPECT_THROW(pool.Run(20,
                          [call](int piece, int) {
                            if (piece == call % 20) {
                              throw std::runtime_error("piece");
                            }
                          }),
                 std::runtime_error);
    std::atomic<int> done{0};
    pool.Run(20, [&done](int, int) { ++done; });
    ASSERT_EQ(done, 20);
  }
}

TEST_P(ThreadPoolTest, RethrowsOnceWhenAllThreadsThrow) {
  ThreadPool pool(GetParam());
  for (int call = 0; call < 20; ++call) {
    EXPECT_THROW(
        RunOnAllThreads(&pool, [](int) { throw std::runtime_error("piece"); }),
        std::runtime_error);
    std::atomic<int> done{0};
    pool.Run(9, [&done](int, int) { ++done; });
    ASSERT_EQ(done, 9);
  }
}

#if defined(__x86_64__)
TEST_P(ThreadPoolTest, SetsTheWorkersFloatControl) {
  const unsigned before = _mm_getcsr();
  // Flush to zero, read as zero, round down: threads inherit it.
  _mm_setcsr(before | _MM_FLUSH_ZERO_ON | 0x0040 | _MM_ROUND_DOWN);
  ThreadPool pool(GetParam());
  SetFloatControl();
  std::vector<std::atomic<int>> right(static_cast<size_t>(GetParam()));
  volatile float tiny = std::numeric_limits<float>::min();
  volatile float three = 3;
  RunOnAllThreads(&pool, [&](int thread) {
    const float half = tiny / 2;
    const bool keeps_subnormals = half > 0 && half * 2 == tiny;
    // The nearest float lies above a third.
    const bool rounds_to_nearest = double{1 / three} > 1.0 / 3;
    right[static_cast<size_t>(thread)] = keeps_subnormals && rounds_to_nearest;
  });
  _mm_setcsr(before);
  for (const std::atomic<int>& value : right) EXPECT_EQ(value, 1);
}
#endif

INSTANTIATE_TEST_SUITE_P(Threads,
                         ThreadPoolTest,
                         ::testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace specwire
