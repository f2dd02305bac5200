// SPDX-License-Identifier: Apache-2.0
#include "common/model/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "absl/time/clock.h"

namespace specwire {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, DoesEveryPieceOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.num_threads(), GetParam());
  for (int call = 0; call < 2000; ++call) {
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

TEST_P(ThreadPoolTest, WorksAfterAPause) {
  ThreadPool pool(GetParam());
  for (int call = 0; call < 3; ++call) {
    // Long enough for workers to fall asleep; nothing depends on it.
    absl::SleepFor(absl::Milliseconds(20));
    std::atomic<int> sum{0};
    pool.Run(100, [&](int piece, int) { sum += piece; });
    EXPECT_EQ(sum, 4950);
  }
}

TEST_P(ThreadPoolTest, RethrowsWhatAPieceThrows) {
  ThreadPool pool(GetParam());
  for (int bad = 0; bad < 20; ++bad) {
    EXPECT_THROW(pool.Run(20,
                          [bad](int piece, int) {
                            if (piece == bad) {
                              throw std::runtime_error("piece");
                            }
                          }),
                 std::runtime_error);
  }
  std::atomic<int> done{0};
  pool.Run(20, [&done](int, int) { ++done; });
  EXPECT_EQ(done, 20);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace specwire
