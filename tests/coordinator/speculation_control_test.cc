// SPDX-License-Identifier: Apache-2.0
#include "coordinator/speculation_control.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "coordinator/speculation_priors.h"

namespace specwire::coordinator {
namespace {

constexpr absl::Duration kPlain = absl::Milliseconds(2);
constexpr absl::Duration kRow = absl::Microseconds(100);

// A round of a drafter whose paths are right for `right` tokens, whose answer
// is there `answer` after a pass has ended, at most a pass later. Returns the
// tokens that it commits.
int Round(SpeculationControl* control,
          int right,
          absl::Duration answer = kPlain / 8,
          float confidence = 0) {
  if (!control->drafting()) {
    control->OnPass({.verify = kPlain});
    control->OnCommitted(1);
    return 1;
  }
  const absl::Duration patience = control->settings().patience;
  const int size = control->settings().run_length;
  const int matched = std::min(right, size);
  if (answer <= patience) {
    control->OnAnswer(size, confidence, 0);
    control->OnPass({.num_proposed = size,
                     .verify = kPlain + size * kRow,
                     .wait = answer,
                     .patience = patience,
                     .answered = true});
    control->OnCompared(matched, size, false);
    control->OnCommitted(matched + 1);
    return matched + 1;
  }
  control->OnAnswer(size, confidence, 0);
  control->OnPass({.verify = kPlain,
                   .wait = patience,
                   .patience = patience,
                   .answered = true});
  control->OnCompared(std::min(right, 1), 1, right > 0 && size > 1);
  control->OnCommitted(1);
  if (right < 1 || size < 2) return 1;
  control->OnPass(
      {.num_proposed = size - 1, .verify = kPlain + (size - 1) * kRow});
  control->OnCompared(matched - 1, size - 1, false);
  control->OnCommitted(matched);
  return 1 + matched;
}

int DraftingRounds(SpeculationControl* control, int rounds, int right) {
  int drafting = 0;
  for (int i = 0; i < rounds; ++i) {
    drafting += control->drafting() ? 1 : 0;
    Round(control, right);
  }
  return drafting;
}

TEST(SpeculationControlTest, GoodDraftsAreKeptAndWaitedFor) {
  SpeculationControl control({}, {});
  EXPECT_EQ(DraftingRounds(&control, 200, 4), 200);
  EXPECT_GT(control.settings().patience, kPlain / 8);
  EXPECT_LT(control.settings().patience, 2 * kPlain);
  EXPECT_GT(control.predicted_speedup(), 2);
  EXPECT_EQ(control.settings().min_survival, 0);
}

TEST(SpeculationControlTest, RunsAreAsLongAsPays) {
  SpeculationControl one({}, {});
  DraftingRounds(&one, 300, 1);
  EXPECT_LE(one.settings().run_length, 2);
  SpeculationControl twelve({}, {});
  DraftingRounds(&twelve, 300, 12);
  EXPECT_EQ(twelve.settings().run_length, 12);
  EXPECT_GE(twelve.settings().window, 12);
}

TEST(SpeculationControlTest, WhatIsFixedStays) {
  SpeculationControl control({},
                             {.run_length = 3,
                              .fixed_run_length = true,
                              .window = 5,
                              .fixed_window = true});
  for (int i = 0; i < 300; ++i) Round(&control, 12, kPlain / 8, 0.9f);
  EXPECT_EQ(control.settings().run_length, 3);
  EXPECT_EQ(control.settings().window, 5);
  EXPECT_EQ(control.settings().min_survival, 0);
  SpeculationControl window({}, {.window = 10, .fixed_window = true});
  DraftingRounds(&window, 300, 30);
  EXPECT_LE(window.settings().run_length, 10);
  EXPECT_EQ(window.settings().window, 10);
}

TEST(SpeculationControlTest, ADrafterThatKnowsIsToldWhereToCut) {
  SpeculationControl control({}, {});
  for (int i = 0; i < 100; ++i) Round(&control, 32, kPlain / 8, 0.9f);
  EXPECT_EQ(control.settings().run_length, 32);
  const float trusted = control.settings().min_survival;
  EXPECT_GT(trusted, 0.01f);
  EXPECT_LT(trusted, 0.7f);
  // What it takes for certain is wrong more often than not.
  for (int i = 0; i < 100; ++i) {
    Round(&control, i % 4 == 0 ? 32 : 8, kPlain / 8, 0.9f);
  }
  EXPECT_GT(control.settings().min_survival, 1.2f * trusted);
}

TEST(SpeculationControlTest, UselessDraftsAreGivenUpAndSeldomTriedAgain) {
  SpeculationControl control({}, {});
  DraftingRounds(&control, 200, 0);
  EXPECT_FALSE(control.estimates().pays);
  // Later attempts become rare, and nobody waits.
  int drafting = 0;
  for (int i = 0; i < 4000; ++i) {
    drafting += control.drafting() ? 1 : 0;
    EXPECT_EQ(control.settings().patience, absl::ZeroDuration());
    Round(&control, 0);
  }
  EXPECT_LT(drafting, 4000 / 10);
  EXPECT_EQ(control.predicted_speedup(), 1);
}

// One pass: two of three drafts are right, one token each, but while the
// drafter works passes take `slowed` as long, as on processors that both share.
void SharedPass(SpeculationControl* control, double slowed, int i) {
  if (!control->drafting()) {
    control->OnPass({.verify = kPlain});
    control->OnCommitted(1);
    return;
  }
  const bool right = i % 3 != 0;
  control->OnAnswer(1, 0, 0);
  control->OnPass({.num_proposed = 1,
                   .num_committed = right ? 2 : 1,
                   .alone = false,
                   .verify = slowed * (kPlain + kRow)});
  control->OnCompared(right ? 1 : 0, 1, false);
  control->OnCommitted(right ? 2 : 1);
}

TEST(SpeculationControlTest, WhatIsMeasuredHasTheLastWord) {
  for (const double slowed : {1.0, 2.0}) {
    SpeculationControl control({}, {.run_length = 1, .window = 1});
    int drafting = 0;
    // Enough passes of both kinds, as requests have them at their beginning.
    for (int i = 0; i < 32; ++i) control.OnPass({.verify = kPlain});
    for (int i = 0; i < 400; ++i) {
      drafting += control.drafting() ? 1 : 0;
      SharedPass(&control, slowed, i);
    }
    EXPECT_EQ(control.estimates().MeasuredGain() > 1, slowed < 1.5);
    EXPECT_EQ(control.estimates().pays, slowed < 1.5);
    if (slowed < 1.5) {
      EXPECT_GT(drafting, 350);
    } else {
      EXPECT_LT(drafting, 150);
    }
    // The next request begins with that.
    SpeculationStart start;
    start.estimates = control.estimates();
    EXPECT_EQ(SpeculationControl(start, {}).drafting(), slowed < 1.5);
  }
}

TEST(SpeculationControlTest, PassesThatNoProposalWasOfUseForTellNothing) {
  SpeculationControl control({}, {});
  for (int i = 0; i < 100; ++i) {
    control.OnPass({.num_proposed = 4,
                    .num_committed = 5,
                    .local = true,
                    .open = false,
                    .verify = kPlain});
  }
  EXPECT_EQ(control.estimates().alone.seconds.count, 0);
  EXPECT_EQ(control.estimates().MeasuredGain(), 1);
}

TEST(SpeculationControlTest, ComesBackWhenDraftsGetGood) {
  SpeculationControl control({}, {});
  DraftingRounds(&control, 400, 0);
  ASSERT_FALSE(control.estimates().pays);
  DraftingRounds(&control, 200, 4);
  EXPECT_TRUE(control.drafting());
  EXPECT_EQ(DraftingRounds(&control, 200, 4), 200);
}

TEST(SpeculationControlTest, SlowDraftsAreNotWaitedFor) {
  SpeculationControl control({}, {});
  for (int i = 0; i < 200; ++i) {
    Round(&control, i * 7919 % 13 < 6 ? 3 : 0, 0.9 * kPlain);
  }
  EXPECT_TRUE(control.drafting());
  EXPECT_EQ(control.settings().patience, absl::ZeroDuration());
}

TEST(SpeculationControlTest, WaitsInsideSpellsOnly) {
  SpeculationControl control({}, {});
  const auto silent = [&] {
    const absl::Duration patience = control.settings().patience;
    control.OnAnswer(0, 0, 0);
    control.OnPass({.verify = kPlain,
                    .wait = std::min(patience, kPlain / 5),
                    .patience = patience,
                    .answered = true});
    control.OnCommitted(1);
  };
  for (int spell = 0; spell < 40; ++spell) {
    for (int i = 0; i < 10; ++i) Round(&control, 3, kPlain / 5);
    for (int i = 0; i < 20; ++i) silent();
  }
  ASSERT_EQ(control.spell(), DraftSpell::kOutside);
  EXPECT_EQ(control.settings().patience, absl::ZeroDuration());
  Round(&control, 3, kPlain / 5);
  EXPECT_EQ(control.spell(), DraftSpell::kInside);
  EXPECT_GT(control.settings().patience, kPlain / 5);
}

TEST(SpeculationControlTest, AMissedWaitIsTheLastUntilTheDrafterSpeaks) {
  SpeculationControl control({}, {});
  DraftingRounds(&control, 100, 4);
  const absl::Duration patience = control.settings().patience;
  ASSERT_GT(patience, absl::ZeroDuration());
  control.OnPass({.verify = kPlain, .wait = patience, .patience = patience});
  control.OnCommitted(1);
  EXPECT_EQ(control.settings().patience, absl::ZeroDuration());
  control.OnPass({.verify = kPlain});
  control.OnCommitted(1);
  EXPECT_EQ(control.settings().patience, absl::ZeroDuration());
  for (int i = 0; i < 50; ++i) Round(&control, 4);
  EXPECT_GT(control.settings().patience, absl::ZeroDuration());
}

TEST(SpeculationControlTest, OneHiccupChangesNothing) {
  SpeculationControl control({}, {});
  DraftingRounds(&control, 100, 4);
  const ChosenSettings before = control.settings();
  control.OnAnswer(before.run_length, 0, 0);
  control.OnPass({.num_proposed = before.run_length,
                  .verify = absl::Seconds(1),
                  .wait = before.patience / 2,
                  .patience = before.patience,
                  .answered = true});
  control.OnCompared(4, before.run_length, false);
  control.OnCommitted(5);
  EXPECT_TRUE(control.drafting());
  EXPECT_EQ(control.settings().run_length, before.run_length);
  EXPECT_GT(control.settings().patience, absl::ZeroDuration());
}

TEST(SpeculationModelTest, AgreesWithTheSynchronousCycle) {
  // guides/performance.md 2.3 with acceptance 0.8, v(m) = 1 + 0.08 (m - 1), no
  // cost of drafting and a round trip of 0.2: every round is answered.
  SpeculationEstimates estimates;
  for (auto& start : estimates.starts) {
    start.answered = {.hits = 1e6, .trials = 1e6};
    start.first = {.hits = 0.8e6, .trials = 1e6};
  }
  for (auto& grows : estimates.grows) grows = {.hits = 0.8e6, .trials = 1e6};
  estimates.costs.Observe(0, 0.002);
  for (int i = 0; i < 100; ++i) estimates.answer_time.Observe(4, 0.0004);
  const SpeculationModel model(estimates);
  for (const int k : {1, 2, 4}) {
    // The path goes on behind a run that is right, and so does the next pass
    // without a wait: a streak of 1 / (1 - a) tokens takes 1 / (1 - a^(k+1))
    // passes and one wait.
    double power = 1;
    for (int i = 0; i <= k; ++i) power *= 0.8;
    const double time = 0.2 + (1 + 0.08 * k) / (1 - power);
    EXPECT_NEAR(model.Evaluate(k).speedup, 5 / time, 0.02) << k;
  }
  // Never drafts at all where a wait would be longer than it is worth.
  for (int i = 0; i < 1000; ++i) estimates.answer_time.Observe(4, 0.004);
  EXPECT_LT(SpeculationModel(estimates).Evaluate(4).rounds[0].wait_gain, 0);
}

TEST(SpeculationPriorsTest, ShortRequestsProfitFromThoseBefore) {
  SpeculationPriors priors;
  EXPECT_TRUE(priors.Start("model", "random").estimates.pays);
  int drafting = 0;
  for (int request = 0; request < 200; ++request) {
    SpeculationControl next(priors.Start("model", "random"), {});
    const int rounds = DraftingRounds(&next, 64, 0);
    if (request >= 100) drafting += rounds;
    priors.Report("model", "random", next.estimates());
  }
  EXPECT_LT(drafting, 100 * 64 / 4);
  EXPECT_FALSE(priors.Start("model", "random").estimates.pays);
  // Of others nothing is known.
  EXPECT_TRUE(priors.Start("model", "ngram").estimates.pays);
  EXPECT_TRUE(priors.Start("other", "random").estimates.pays);
}

TEST(SpeculationPriorsTest, AShortRequestBeginsWithWhatPays) {
  SpeculationPriors priors;
  for (int request = 0; request < 20; ++request) {
    SpeculationControl next(priors.Start("model", "suffix"), {});
    DraftingRounds(&next, 64, 12);
    priors.Report("model", "suffix", next.estimates());
  }
  const SpeculationControl next(priors.Start("model", "suffix"), {});
  EXPECT_GT(next.predicted_speedup(), 3);
  EXPECT_EQ(next.settings().run_length, 12);
  EXPECT_GT(next.settings().patience, absl::ZeroDuration());
}

TEST(SpeculationPriorsTest, EveryRequestTriesWhereDraftsPayForSome) {
  SpeculationPriors priors;
  int paying_drafted = 0;
  for (int request = 0; request < 200; ++request) {
    const bool pays = request % 5 == 0;
    SpeculationControl next(priors.Start("model", ""), {});
    const int rounds = DraftingRounds(&next, 100, pays ? 4 : 0);
    if (request >= 100 && pays) paying_drafted += rounds;
    priors.Report("model", "", next.estimates());
  }
  EXPECT_GT(paying_drafted, 20 * 100 * 3 / 4);
}

TEST(SpeculationPriorsTest, SomeTryWhereDraftsPayForNobody) {
  SpeculationPriors priors;
  SpeculationEstimates bad;
  bad.pays = false;
  for (int request = 0; request < 100; ++request) {
    priors.Report("model", "", bad);
  }
  int attempts = 0;
  for (int request = 0; request < 100; ++request) {
    attempts += priors.Start("model", "").first_attempt < 100 ? 1 : 0;
    priors.Report("model", "", bad);
  }
  // After 4 requests, 8 more, 16, 32, 32.
  EXPECT_EQ(attempts, 5);
  // Once they have paid, the next attempts come soon.
  SpeculationEstimates good;
  priors.Report("model", "", good);
  for (int request = 0; request < 20; ++request) {
    priors.Report("model", "", bad);
  }
  attempts = 0;
  for (int request = 0; request < 12; ++request) {
    attempts += priors.Start("model", "").first_attempt < 100 ? 1 : 0;
  }
  EXPECT_EQ(attempts, 2);
}

TEST(SpeculationPriorsTest, WhatIsDoubtfulMustBeSeenToPay) {
  SpeculationPriors priors;
  int attempts = 0;
  for (int request = 0; request < 40; ++request) {
    const SpeculationStart start = priors.Start("model", "", /*doubtful=*/true);
    EXPECT_TRUE(request >= 4 || !start.estimates.pays);
    EXPECT_TRUE(request >= 3 || start.first_attempt > 100);
    SpeculationControl next(start, {});
    // The oracle drafts.
    if (DraftingRounds(&next, 100, 12) > 10) ++attempts;
    priors.Report("model", "", next.estimates());
  }
  EXPECT_GE(attempts, 30);
  EXPECT_TRUE(priors.Start("model", "", true).estimates.pays);
}

}  // namespace
}  // namespace specwire::coordinator
