// SPDX-License-Identifier: Apache-2.0
#include "common/base/byte_budget.h"

#include <optional>
#include <thread>
#include <utility>

#include "gtest/gtest.h"

namespace specwire {
namespace {

TEST(ByteBudgetTest, LeasesGrowUntilAllIsTaken) {
  ByteBudget budget(100);
  ByteBudget::Lease first = budget.Open();
  EXPECT_TRUE(first.Grow(60));
  ByteBudget::Lease second = budget.Open();
  EXPECT_FALSE(second.Grow(41));
  EXPECT_TRUE(second.Grow(40));
  EXPECT_FALSE(first.Grow(1));
  EXPECT_EQ(budget.used(), 100u);
  first.Release();
  EXPECT_TRUE(second.Grow(60));
  { const ByteBudget::Lease moved = std::move(second); }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(ByteBudgetTest, WhoAsksForMoreThanThereIsGetsAll) {
  ByteBudget budget(100);
  const std::optional<ByteBudget::Lease> lease =
      budget.Take(1000, absl::ZeroDuration());
  EXPECT_TRUE(lease.has_value());
  EXPECT_EQ(budget.used(), 100u);
}

TEST(ByteBudgetTest, WaitsForRoomAndGivesUp) {
  ByteBudget budget(100);
  std::optional<ByteBudget::Lease> lease =
      budget.Take(100, absl::ZeroDuration());
  ASSERT_TRUE(lease.has_value());
  EXPECT_FALSE(budget.Take(1, absl::Milliseconds(10)).has_value());
  std::optional<ByteBudget::Lease> other;
  std::thread thread([&] { other = budget.Take(50, absl::Minutes(5)); });
  lease.reset();
  thread.join();
  EXPECT_TRUE(other.has_value());
  EXPECT_EQ(budget.used(), 50u);
}

TEST(ByteBudgetTest, SmallOnesDoNotOvertakeALargeOneForEver) {
  ByteBudget budget(100);
  std::optional<ByteBudget::Lease> lease =
      budget.Take(50, absl::ZeroDuration());
  std::optional<ByteBudget::Lease> large;
  std::thread thread([&] { large = budget.Take(100, absl::Minutes(5)); });
  // Once the large one waits, small ones stand behind it.
  while (budget.Take(1, absl::Milliseconds(1)).has_value()) {
  }
  lease.reset();
  thread.join();
  EXPECT_TRUE(large.has_value());
}

}  // namespace
}  // namespace specwire
