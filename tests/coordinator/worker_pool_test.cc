// SPDX-License-Identifier: Apache-2.0
#include "coordinator/worker_pool.h"

#include "common/base/mutex.h"
#include "gtest/gtest.h"

namespace specwire::coordinator {
namespace {

// Holds a pool's only thread up, so that what is posted waits.
class Gate {
 public:
  explicit Gate(WorkerPool* pool) {
    EXPECT_TRUE(pool->Post([this] { Wait(); }));
    MutexLock lock(&mutex_);
    while (!entered_) changed_.Wait(&mutex_);
  }
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  void Wait() {
    MutexLock lock(&mutex_);
    entered_ = true;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(&mutex_);
  }

  Mutex mutex_;
  CondVar changed_;
  bool entered_ ABSL_GUARDED_BY(mutex_) = false;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST(WorkerPoolTest, RefusesWhatDoesNotFit) {
  int num_run = 0;
  {
    WorkerPool pool("test", 1, /*max_queued=*/4, /*max_bytes=*/100);
    Gate gate(&pool);
    const auto count = [&num_run] { ++num_run; };
    EXPECT_TRUE(pool.Post(count, 60));
    EXPECT_FALSE(pool.Post(count, 41));
    EXPECT_TRUE(pool.Post(count, 40));
    EXPECT_FALSE(pool.Post(count, 1));
    // Those that hold nothing are bounded by number alone.
    EXPECT_TRUE(pool.Post(count));
    EXPECT_TRUE(pool.Post(count));
    EXPECT_FALSE(pool.Post(count));
    gate.Open();
  }
  EXPECT_EQ(num_run, 4);
}

TEST(WorkerPoolTest, TakesOneThatIsLargerThanTheLimit) {
  int num_run = 0;
  {
    WorkerPool pool("test", 1, /*max_queued=*/4, /*max_bytes=*/100);
    Gate gate(&pool);
    const auto count = [&num_run] { ++num_run; };
    EXPECT_TRUE(pool.Post(count, 1000));
    EXPECT_FALSE(pool.Post(count, 1));
    gate.Open();
  }
  EXPECT_EQ(num_run, 1);
}

}  // namespace
}  // namespace specwire::coordinator
