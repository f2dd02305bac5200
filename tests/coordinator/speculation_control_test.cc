// SPDX-License-Identifier: Apache-2.0
#include "coordinator/speculation_control.h"

#include <gtest/gtest.h>

#include "coordinator/speculation_priors.h"

namespace specwire::coordinator {
namespace {

constexpr int kRunLength = 4;
constexpr absl::Duration kPlain = absl::Milliseconds(2);

// A pass of a drafter whose first `right` tokens of each run of four are right,
// whose proposals are there `wait` after a step has ended.
void Pass(SpeculationControl* control,
          int right,
          absl::Duration wait,
          absl::Duration row = kPlain / 20) {
  if (!control->drafting()) {
    control->OnPass(0, kPlain, absl::ZeroDuration(), true);
    control->OnCommitted(1);
    return;
  }
  control->OnAnswer(true);
  if (control->waiting()) {
    control->OnCompared(right, kRunLength);
    control->OnPass(kRunLength, kPlain + kRunLength * row, wait, true);
    control->OnCommitted(right + 1);
  } else {
    control->OnCompared(right > 0 ? 1 : 0, 1);
    control->OnPass(0, kPlain, absl::ZeroDuration(), true);
    control->OnCommitted(1);
  }
}

int DraftingPasses(SpeculationControl* control, int passes, int right) {
  int drafting = 0;
  for (int i = 0; i < passes; ++i) {
    drafting += control->drafting() ? 1 : 0;
    Pass(control, right, kPlain / 8);
  }
  return drafting;
}

TEST(SpeculationControlTest, GoodDraftsAreKept) {
  SpeculationControl control({}, kRunLength);
  EXPECT_EQ(DraftingPasses(&control, 200, 4), 200);
  EXPECT_TRUE(control.waiting());
  EXPECT_GT(control.predicted_speedup(), 2);
}

TEST(SpeculationControlTest, UselessDraftsAreGivenUpAndSeldomTriedAgain) {
  SpeculationControl control({}, kRunLength);
  // A new sequence learns within a few dozen passes.
  EXPECT_LT(DraftingPasses(&control, 200, 0), 80);
  // Later attempts become rare.
  EXPECT_LT(DraftingPasses(&control, 4000, 0), 4000 / 20);
  EXPECT_FALSE(control.waiting());
}

TEST(SpeculationControlTest, ComesBackWhenDraftsGetGood) {
  SpeculationControl control({}, kRunLength);
  DraftingPasses(&control, 300, 0);
  ASSERT_FALSE(control.drafting());
  DraftingPasses(&control, 600, 4);
  EXPECT_TRUE(control.drafting());
  EXPECT_EQ(DraftingPasses(&control, 200, 4), 200);
}

TEST(SpeculationControlTest, SlowDraftsAreNotWaitedFor) {
  SpeculationControl control({}, kRunLength);
  for (int i = 0; i < 200; ++i) Pass(&control, 2, 4 * kPlain);
  EXPECT_TRUE(control.drafting());
  EXPECT_FALSE(control.waiting());
}

TEST(SpeculationControlTest, ADrafterThatHasNothingToSayIsLeftAlone) {
  SpeculationControl control({}, kRunLength);
  for (int i = 0; i < 200 && control.drafting(); ++i) {
    control.OnAnswer(false);
    control.OnPass(0, kPlain, kPlain / 8, true);
    control.OnCommitted(1);
  }
  EXPECT_FALSE(control.drafting());
}

TEST(SpeculationControlTest, OneHiccupChangesNothing) {
  SpeculationControl control({}, kRunLength);
  DraftingPasses(&control, 50, 3);
  ASSERT_TRUE(control.waiting());
  control.OnAnswer(true);
  control.OnCompared(3, 4);
  control.OnPass(4, absl::Seconds(1), absl::Seconds(1), true);
  control.OnCommitted(4);
  EXPECT_TRUE(control.drafting());
  EXPECT_TRUE(control.waiting());
}

TEST(SpeculationPriorsTest, ShortRequestsProfitFromThoseBefore) {
  SpeculationPriors priors;
  EXPECT_TRUE(priors.Start("model", "random").estimates.pays);
  int drafting = 0;
  for (int request = 0; request < 200; ++request) {
    SpeculationControl next(priors.Start("model", "random"), kRunLength);
    const int passes = DraftingPasses(&next, 64, 0);
    if (request >= 100) drafting += passes;
    priors.Report("model", "random", next.estimates());
  }
  EXPECT_LT(drafting, 100 * 64 / 10);
  // Of others nothing is known.
  EXPECT_TRUE(priors.Start("model", "ngram").estimates.pays);
  EXPECT_TRUE(priors.Start("other", "random").estimates.pays);
}

TEST(SpeculationPriorsTest, EveryRequestTriesWhereDraftsPayForSome) {
  SpeculationPriors priors;
  int paying_drafted = 0;
  int others_drafted = 0;
  for (int request = 0; request < 200; ++request) {
    const bool pays = request % 5 == 0;
    SpeculationControl next(priors.Start("model", ""), kRunLength);
    const int passes = DraftingPasses(&next, 100, pays ? 4 : 0);
    if (request >= 100) (pays ? paying_drafted : others_drafted) += passes;
    priors.Report("model", "", next.estimates());
  }
  EXPECT_GT(paying_drafted, 20 * 100 * 3 / 4);
  EXPECT_LT(others_drafted, 80 * 100 / 3);
}

TEST(SpeculationPriorsTest, SomeTryWhereDraftsPayForNobody) {
  SpeculationPriors priors;
  SpeculationEstimates bad;
  bad.first = 0;
  bad.pays = false;
  for (int request = 0; request < 100; ++request) {
    priors.Report("model", "", bad);
  }
  int attempts = 0;
  for (int request = 0; request < 100; ++request) {
    attempts += priors.Start("model", "").first_attempt < 100 ? 1 : 0;
    priors.Report("model", "", bad);
  }
  EXPECT_EQ(attempts, 25);
}

}  // namespace
}  // namespace specwire::coordinator
