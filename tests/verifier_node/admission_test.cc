// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/admission.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace specwire::verifier {
namespace {

absl::Time At(int ms) { return absl::UnixEpoch() + absl::Milliseconds(ms); }

TEST(FairShareTest, CountsWhatEachTenantGot) {
  FairShare shares;
  shares.Enter("a");
  shares.Enter("b");
  shares.Charge("a", 10);
  shares.Charge("b", 3);
  EXPECT_EQ(shares.served("a"), 10);
  EXPECT_EQ(shares.served("b"), 3);
  EXPECT_EQ(shares.served("nobody"), 0);
}

TEST(FairShareTest, ANewcomerStartsAtTheMinimum) {
  FairShare shares;
  shares.Enter("a");
  shares.Enter("b");
  shares.Charge("a", 100);
  shares.Charge("b", 70);
  shares.Enter("c");
  EXPECT_EQ(shares.served("c"), 70);
}

TEST(FairShareTest, IdlingSavesUpNothing) {
  FairShare shares;
  shares.Enter("a");
  shares.Enter("b");
  shares.Charge("a", 5);
  shares.Leave("a");
  shares.Charge("b", 1000);
  shares.Enter("a");
  EXPECT_EQ(shares.served("a"), 1000);
}

TEST(FairShareTest, LeavingPaysOffNoDebt) {
  FairShare shares;
  shares.Enter("a");
  shares.Enter("b");
  shares.Charge("a", 500);
  shares.Leave("a");
  shares.Charge("b", 20);
  shares.Enter("a");
  EXPECT_EQ(shares.served("a"), 500);
  // Nor does it if nobody is left.
  shares.Leave("a");
  shares.Leave("b");
  shares.Enter("c");
  EXPECT_EQ(shares.served("c"), 20);
  shares.Enter("a");
  EXPECT_EQ(shares.served("a"), 500);
}

TEST(FairShareTest, ATenantIsPresentUntilItsLastSequenceLeaves) {
  FairShare shares;
  shares.Enter("a");
  shares.Enter("a");
  shares.Leave("a");
  shares.Charge("a", 7);
  shares.Enter("b");
  EXPECT_EQ(shares.served("b"), 7);
}

TEST(FairShareTest, RemembersABoundedNumber) {
  FairShare shares;
  shares.Enter("stays");
  for (int i = 0; i < 5000; ++i) {
    const std::string name = absl::StrCat("tenant", i);
    shares.Enter(name);
    shares.Charge(name, i % 7 == 0 ? 1000000 : 1);
    shares.Leave(name);
  }
  EXPECT_LE(shares.num_tenants(), FairShare::kMaxIdle + 1);
  EXPECT_EQ(shares.served("stays"), 0);
}

// Two tenants, one with ten times the sequences: by order of standing they get
// the same.
TEST(StandingTest, TenantsGetTheSameTokens) {
  FairShare shares;
  std::vector<std::string> owners(10, "many");
  owners.push_back("one");
  for (const std::string& owner : owners) shares.Enter(owner);
  int64_t got_one = 0;
  for (int turn = 0; turn < 1000; ++turn) {
    size_t best = 0;
    const auto standing = [&](size_t i) {
      return Standing{.served = shares.served(owners[i]),
                      .arrival = static_cast<int64_t>(i)};
    };
    for (size_t i = 1; i < owners.size(); ++i) {
      if (standing(i).GoesBefore(standing(best))) best = i;
    }
    shares.Charge(owners[best], 5);
    if (owners[best] == "one") got_one += 5;
  }
  EXPECT_NEAR(static_cast<double>(got_one), 2500, 10);
}

TEST(StandingTest, PriorityThenTenantThenTurnThenArrival) {
  const Standing low = {.priority = -2147483647, .arrival = 1};
  const Standing high = {
      .priority = 2147483647, .served = 99, .last_pass = 99, .arrival = 9};
  EXPECT_TRUE(high.GoesBefore(low));
  EXPECT_FALSE(low.GoesBefore(high));
  EXPECT_TRUE((Standing{.served = 1, .last_pass = 9, .arrival = 9}.GoesBefore(
      {.served = 2})));
  EXPECT_TRUE(
      (Standing{.last_pass = 1, .arrival = 9}.GoesBefore({.last_pass = 2})));
  EXPECT_TRUE((Standing{.arrival = 1}.GoesBefore({.arrival = 2})));
  EXPECT_FALSE(low.GoesBefore(low));
}

TEST(WaitEstimateTest, CountsOnlyWhileSomebodyWaits) {
  WaitEstimate estimate;
  EXPECT_FALSE(estimate.interval().has_value());
  estimate.OnLeft(At(10));
  EXPECT_FALSE(estimate.interval().has_value());
  estimate.OnWaiting(true, At(1000));
  estimate.OnWaiting(true, At(1050));
  estimate.OnLeft(At(1100));
  EXPECT_EQ(estimate.interval(), absl::Milliseconds(100));
  // A quiet hour is no slow one.
  estimate.OnWaiting(false, At(1100));
  estimate.OnWaiting(true, At(3600000));
  estimate.OnLeft(At(3600100));
  EXPECT_EQ(estimate.interval(), absl::Milliseconds(100));
}

TEST(WaitEstimateTest, IsTheMeanOfThoseThatLeaveTogether) {
  WaitEstimate estimate;
  estimate.OnWaiting(true, At(0));
  for (int pass = 1; pass <= 40; ++pass) {
    for (int i = 0; i < 4; ++i) estimate.OnLeft(At(100 * pass));
  }
  EXPECT_EQ(estimate.interval(), absl::Milliseconds(25));
}

TEST(ServiceEstimateTest, IsTheTimeOfATokenTimesTheUsualNumber) {
  ServiceEstimate estimate;
  EXPECT_EQ(estimate.Expect(100), absl::ZeroDuration());
  estimate.OnServed(absl::Milliseconds(5), 0);
  EXPECT_EQ(estimate.Expect(100), absl::ZeroDuration());
  for (int i = 0; i < 200; ++i) {
    estimate.OnServed(absl::Milliseconds(200), 20);
  }
  EXPECT_EQ(estimate.Expect(5), absl::Milliseconds(50));
  EXPECT_EQ(estimate.Expect(20), absl::Milliseconds(200));
  // Few use all that they may.
  EXPECT_EQ(estimate.Expect(4000), absl::Milliseconds(200));
}

TEST(ChooseVictimTest, ThereMustBeSomebodyElse) {
  EXPECT_EQ(ChooseVictim({}), std::nullopt);
  EXPECT_EQ(ChooseVictim({{.arrival = 5}}), std::nullopt);
  // One without credit does not advance anyway.
  EXPECT_EQ(ChooseVictim({{.blocked = true, .arrival = 5}}), 0u);
}

TEST(ChooseVictimTest, LowestPriorityThenBlockedThenYoungest) {
  EXPECT_EQ(ChooseVictim({{.arrival = 1}, {.arrival = 3}, {.arrival = 2}}), 1u);
  EXPECT_EQ(
      ChooseVictim(
          {{.arrival = 1}, {.arrival = 3}, {.blocked = true, .arrival = 2}}),
      2u);
  EXPECT_EQ(ChooseVictim({{.priority = 1, .arrival = 1},
                          {.priority = 1, .blocked = true, .arrival = 3},
                          {.priority = 0, .arrival = 0}}),
            2u);
}

TEST(ChooseVictimTest, SparesTheOldestOfTheHighestPriority) {
  const std::vector<VictimCandidate> running = {
      {.num_preemptions = 0, .priority = 3, .arrival = 8},
      {.num_preemptions = 5, .priority = 3, .arrival = 9},
      {.num_preemptions = 5, .priority = 0, .arrival = 1}};
  EXPECT_EQ(FindProtected(running), 0u);
  // Though it was never preempted, and the others often.
  EXPECT_EQ(ChooseVictim(running), 2u);
}

TEST(ChooseVictimTest, SparesOneThatWasPreemptedTwice) {
  EXPECT_EQ(ChooseVictim({{.arrival = 1},
                          {.num_preemptions = 1, .arrival = 2},
                          {.num_preemptions = 2, .arrival = 3}}),
            1u);
  EXPECT_EQ(
      ChooseVictim({{.arrival = 1}, {.num_preemptions = 2, .arrival = 3}}), 1u);
}

}  // namespace
}  // namespace specwire::verifier
