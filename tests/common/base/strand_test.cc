// SPDX-License-Identifier: Apache-2.0
#include "common/base/strand.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/common/base/event.h"

namespace specwire {
namespace {

TEST(StrandTest, RunsAtOnceWhenIdle) {
  Strand strand;
  bool ran = false;
  strand.Post([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(StrandTest, RunsWhatTasksPostAfterThem) {
  Strand strand;
  std::vector<int> order;
  strand.Post([&] {
    strand.Post([&] { order.push_back(2); });
    strand.Post([&] { order.push_back(3); });
    order.push_back(1);
  });
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(StrandTest, RunsOneTaskAtATimeInEachThreadsOrder) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 5000;
  Strand strand;
  // Guarded by the strand alone.
  int64_t running = 0;
  int64_t total = 0;
  std::vector<int> last(kThreads, -1);
  bool in_order = true;
  bool alone = true;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i) {
        strand.Post([&, t, i] {
          alone = alone && running++ == 0;
          in_order = in_order && last[static_cast<size_t>(t)] == i - 1;
          last[static_cast<size_t>(t)] = i;
          ++total;
          --running;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  strand.Post([&] {
    EXPECT_EQ(total, kThreads * kTasks);
    EXPECT_TRUE(in_order);
    EXPECT_TRUE(alone);
  });
}

TEST(StrandTest, CloseDropsWhatHasNotBegun) {
  Strand strand;
  int ran = 0;
  strand.Post([&] {
    strand.Post([&] { ++ran; });
    strand.Close();
    strand.Post([&] { ++ran; });
  });
  strand.Post([&] { ++ran; });
  EXPECT_EQ(ran, 0);
}

TEST(StrandTest, CloseWaitsForTheRunningTask) {
  Strand strand;
  Event started;
  Event go_on;
  std::atomic<bool> finished = false;
  std::atomic<bool> closed_after_finish = false;
  std::thread worker([&] {
    strand.Post([&] {
      started.Notify();
      go_on.Wait();
      finished = true;
    });
  });
  started.Wait();
  std::thread closer([&] {
    strand.Close();
    closed_after_finish = finished.load();
  });
  go_on.Notify();
  worker.join();
  closer.join();
  EXPECT_TRUE(closed_after_finish);
}

TEST(StrandTest, ATaskMayDestroyTheStrand) {
  auto strand = std::make_unique<Strand>();
  bool dropped_ran = false;
  // The raw pointer, because the owner is emptied before the strand ends.
  Strand* raw = strand.get();
  raw->Post([&] {
    raw->Post([&] { dropped_ran = true; });
    strand.reset();
  });
  EXPECT_EQ(strand, nullptr);
  EXPECT_FALSE(dropped_ran);
}

TEST(StrandTest, WhatATaskHoldsMayPostWhenItIsDestroyed) {
  Strand strand;
  std::vector<int> order;
  struct PostsAtTheEnd {
    ~PostsAtTheEnd() {
      strand->Post([order = order] { order->push_back(2); });
    }
    Strand* strand;
    std::vector<int>* order;
  };
  auto holder = std::make_shared<PostsAtTheEnd>();
  holder->strand = &strand;
  holder->order = &order;
  strand.Post([&order, holder = std::move(holder)] { order.push_back(1); });
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace specwire
