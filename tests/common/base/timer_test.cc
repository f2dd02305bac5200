// SPDX-License-Identifier: Apache-2.0
#include "common/base/timer.h"

#include <atomic>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "gtest/gtest.h"
#include "tests/common/base/event.h"

namespace specwire {
namespace {

TEST(TimerThreadTest, RunsInOrderOfDueTime) {
  TimerThread timer;
  Event done;
  std::vector<int> order;
  // One long wait first, so that all are pending when the first is due.
  const absl::Duration base = absl::Milliseconds(20);
  timer.ScheduleAfter(base + absl::Milliseconds(10), [&] {
    order.push_back(3);
    done.Notify();
  });
  timer.ScheduleAfter(base, [&] { order.push_back(1); });
  timer.ScheduleAfter(base + absl::Milliseconds(5),
                      [&] { order.push_back(2); });
  done.Wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(TimerThreadTest, DoesNotRunEarly) {
  TimerThread timer;
  Event done;
  const absl::Time start = absl::Now();
  timer.ScheduleAfter(absl::Milliseconds(30), [&] { done.Notify(); });
  done.Wait();
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(29));
}

TEST(TimerThreadTest, ADeadlineInThePastRunsAtOnce) {
  TimerThread timer;
  Event done;
  timer.Schedule(absl::InfinitePast(), [&] { done.Notify(); });
  EXPECT_TRUE(done.WaitOrGiveUp());
}

TEST(TimerThreadTest, ANewFirstOneWakesTheThread) {
  TimerThread timer;
  Event done;
  timer.ScheduleAfter(absl::InfiniteDuration(), [] { ADD_FAILURE(); });
  timer.ScheduleAfter(absl::Hours(1), [] { ADD_FAILURE(); });
  timer.ScheduleAfter(absl::ZeroDuration(), [&] { done.Notify(); });
  EXPECT_TRUE(done.WaitOrGiveUp());
  EXPECT_EQ(timer.num_pending(), 2u);
}

TEST(TimerThreadTest, CancelledOnesDoNotRun) {
  TimerThread timer;
  const TimerThread::Id id =
      timer.ScheduleAfter(absl::Milliseconds(5), [] { ADD_FAILURE(); });
  EXPECT_TRUE(timer.Cancel(id));
  EXPECT_FALSE(timer.Cancel(id));
  EXPECT_FALSE(timer.Cancel(TimerThread::kNone));
  Event later;
  timer.ScheduleAfter(absl::Milliseconds(20), [&] { later.Notify(); });
  later.Wait();
}

TEST(TimerThreadTest, CallbacksMayScheduleAndCancel) {
  TimerThread timer;
  Event done;
  timer.ScheduleAfter(absl::ZeroDuration(), [&] {
    const TimerThread::Id id =
        timer.ScheduleAfter(absl::ZeroDuration(), [] { ADD_FAILURE(); });
    EXPECT_TRUE(timer.Cancel(id));
    timer.ScheduleAfter(absl::ZeroDuration(), [&] { done.Notify(); });
  });
  EXPECT_TRUE(done.WaitOrGiveUp());
}

TEST(TimerThreadTest, RefusesMoreThanItsLimit) {
  TimerThread timer(/*max_pending=*/2);
  EXPECT_NE(timer.ScheduleAfter(absl::Hours(1), [] {}), TimerThread::kNone);
  const TimerThread::Id second = timer.ScheduleAfter(absl::Hours(1), [] {});
  EXPECT_EQ(timer.ScheduleAfter(absl::Hours(1), [] {}), TimerThread::kNone);
  EXPECT_TRUE(timer.Cancel(second));
  EXPECT_NE(timer.ScheduleAfter(absl::Hours(1), [] {}), TimerThread::kNone);
}

TEST(TimerThreadTest, DestructionDropsPendingOnes) {
  auto held = std::make_shared<int>(0);
  {
    TimerThread timer;
    timer.ScheduleAfter(absl::Hours(1), [held] { ++*held; });
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 0);
}

TEST(TimerThreadTest, DestructionWaitsForTheRunningOne) {
  Event started;
  std::atomic<bool> finished = false;
  {
    TimerThread timer;
    timer.ScheduleAfter(absl::ZeroDuration(), [&] {
      started.Notify();
      absl::SleepFor(absl::Milliseconds(20));
      finished = true;
    });
    started.Wait();
  }
  EXPECT_TRUE(finished);
}

}  // namespace
}  // namespace specwire
