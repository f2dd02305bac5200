// SPDX-License-Identifier: Apache-2.0
#include "coordinator/worker_pool.h"

#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "gmock/gmock.h"
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

TEST(WorkerPoolTest, UsersTakeTurns) {
  std::vector<std::string> order;
  {
    WorkerPool pool("test", 1, /*max_queued=*/100);
    Gate gate(&pool);
    const auto post = [&](const std::string& name, const std::string& user) {
      EXPECT_TRUE(pool.Post([&order, name] { order.push_back(name); },
                            /*num_bytes=*/1,
                            user));
    };
    for (const char* name : {"a1", "a2", "a3", "a4"}) post(name, "anna");
    post("b1", "bert");
    post("b2", "bert");
    post("c1", "cara");
    gate.Open();
  }
  EXPECT_THAT(order,
              testing::ElementsAre("a1", "b1", "c1", "a2", "b2", "a3", "a4"));
}

TEST(WorkerPoolTest, SmallTasksDoNotWaitForLargeOnesNorTheseForEver) {
  std::string order;
  {
    WorkerPool pool("test", 1, /*max_queued=*/1000);
    Gate gate(&pool);
    const auto post = [&](char name, size_t num_bytes) {
      EXPECT_TRUE(pool.Post([&order, name] { order += name; }, num_bytes));
    };
    for (int i = 0; i < 3; ++i) post('L', WorkerPool::kSmallBytes + 1);
    for (int i = 0; i < WorkerPool::kSmallInARow + 2; ++i) {
      post('s', WorkerPool::kSmallBytes);
    }
    gate.Open();
  }
  // The gate's own task was a small one.
  EXPECT_EQ(
      order,
      std::string(WorkerPool::kSmallInARow - 1, 's') + "L" + "sss" + "LL");
}

TEST(WorkerPoolTest, OneUserDoesNotFillIt) {
  WorkerPool pool("test", 1, /*max_queued=*/8, /*max_bytes=*/100);
  Gate gate(&pool);
  const auto post = [&](const std::string& user, size_t num_bytes) {
    return pool.Post([] {}, num_bytes, user);
  };
  EXPECT_TRUE(post("anna", 40));
  EXPECT_FALSE(post("anna", 11));
  EXPECT_TRUE(post("anna", 10));
  EXPECT_TRUE(post("bert", 50));
  EXPECT_FALSE(post("cara", 1));
  EXPECT_TRUE(post("cara", 0));
  EXPECT_TRUE(post("anna", 0));
  EXPECT_TRUE(post("anna", 0));
  // Half of all tasks.
  EXPECT_FALSE(post("anna", 0));
  EXPECT_TRUE(post("bert", 0));
  gate.Open();
}

}  // namespace
}  // namespace specwire::coordinator
