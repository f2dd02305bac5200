// SPDX-License-Identifier: Apache-2.0
#include "coordinator/drafter_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace specwire::coordinator {
namespace {

using ::testing::HasSubstr;

Proposal MakeRun(int position, int based_on, std::vector<int32_t> tokens) {
  Proposal proposal;
  proposal.source = 1;
  proposal.position = position;
  proposal.based_on = based_on;
  proposal.tokens = std::move(tokens);
  return proposal;
}

// A view of a drafter that was opened on the log 1 2 3: runs of at most four
// tokens in a window of eight.
class DrafterViewTest : public testing::Test {
 protected:
  DrafterViewTest() : view_(100, 4, 8) { view_.OnOpened(3); }

  // "forward", "overlapped O stale S", or the error's message.
  std::string Take(const Proposal& proposal) {
    const absl::StatusOr<DrafterView::Verdict> verdict =
        view_.OnProposal(proposal, log_);
    if (!verdict.ok()) {
      return std::string(verdict.status().message());
    }
    return verdict->forward ? "forward"
                            : absl::StrCat("overlapped ",
                                           verdict->overlapped,
                                           " stale ",
                                           verdict->stale);
  }
  void Commit(const std::vector<int32_t>& tokens) {
    log_.insert(log_.end(), tokens.begin(), tokens.end());
    view_.OnCommit(log_, tokens.size());
  }

  std::vector<int32_t> log_ = {1, 2, 3};
  DrafterView view_;
};

TEST_F(DrafterViewTest, TellsWhereAPathBegins) {
  const auto take = [this](const Proposal& proposal) {
    return view_.OnProposal(proposal, log_).value();
  };
  EXPECT_TRUE(take(MakeRun(3, 3, {})).begins);
  Commit({5});
  EXPECT_TRUE(take(MakeRun(4, 4, {7, 8})).begins);
  EXPECT_FALSE(take(MakeRun(6, 4, {9})).begins);
  EXPECT_TRUE(view_.has_path());
  Commit({7, 8, 9});
  EXPECT_FALSE(view_.has_path());
  // Late by two tokens, of which the first was right.
  Commit({1, 2});
  const DrafterView::Verdict wrong = take(MakeRun(7, 7, {1, 3}));
  EXPECT_TRUE(wrong.begins);
  EXPECT_EQ(wrong.late.matched, 1);
  EXPECT_EQ(wrong.late.compared, 2);
  // Late by one, and right.
  Commit({4});
  const DrafterView::Verdict right = take(MakeRun(9, 9, {4, 6}));
  EXPECT_TRUE(right.begins);
  EXPECT_TRUE(right.forward);
  EXPECT_EQ(right.late.matched, 1);
  EXPECT_EQ(right.late.compared, 1);
}

TEST_F(DrafterViewTest, TakesWhatEarlierSettingsAllowed) {
  view_.OnTuned(6, 12);
  EXPECT_EQ(Take(MakeRun(3, 3, {1, 1, 1, 1, 1, 1})), "forward");
  view_.OnTuned(2, 4);
  EXPECT_EQ(Take(MakeRun(9, 3, {1, 1, 1, 1, 1, 1})), "forward");
  EXPECT_THAT(Take(MakeRun(15, 3, {1})), HasSubstr("window"));
}

TEST_F(DrafterViewTest, OwesAnAnswerToItsOpen) {
  EXPECT_TRUE(view_.owes());
  EXPECT_EQ(view_.owed(), 1);
  EXPECT_EQ(view_.num_outstanding(), 0);
}

TEST_F(DrafterViewTest, AProposalAnswers) {
  EXPECT_EQ(Take(MakeRun(3, 3, {7, 8})), "forward");
  EXPECT_FALSE(view_.owes());
  EXPECT_EQ(view_.num_outstanding(), 2);
}

TEST_F(DrafterViewTest, AnEmptyProposalAtTheEndAnswers) {
  EXPECT_EQ(Take(MakeRun(3, 3, {})), "forward");
  EXPECT_FALSE(view_.owes());
}

TEST_F(DrafterViewTest, AnEmptyProposalBehindWhatIsOutstandingIsPassedOn) {
  Take(MakeRun(3, 3, {7, 8}));
  EXPECT_EQ(Take(MakeRun(5, 3, {})), "forward");
}

TEST_F(DrafterViewTest, AnEmptyProposalElsewhereIsNoAnswer) {
  EXPECT_EQ(Take(MakeRun(4, 3, {})), "overlapped 0 stale 0");
  EXPECT_TRUE(view_.owes());
  EXPECT_EQ(view_.owed(), 1);
}

TEST_F(DrafterViewTest, AGapIsDroppedAndNoAnswer) {
  EXPECT_EQ(Take(MakeRun(4, 3, {7, 8})), "overlapped 0 stale 2");
  EXPECT_TRUE(view_.owes());
  EXPECT_EQ(view_.num_outstanding(), 0);
  // Nor does it count as said.
  EXPECT_EQ(Take(MakeRun(3, 3, {5, 6})), "forward");
}

TEST_F(DrafterViewTest, ACommitThatLeavesSomethingOutstandingOwesNothing) {
  Take(MakeRun(3, 3, {7, 8, 9}));
  Commit({7, 8});
  EXPECT_FALSE(view_.owes());
  EXPECT_EQ(view_.num_outstanding(), 1);
}

TEST_F(DrafterViewTest, ACommitThatLeavesNothingOutstandingBeginsADebt) {
  Take(MakeRun(3, 3, {7, 8}));
  Commit({7, 8, 9});
  EXPECT_TRUE(view_.owes());
  EXPECT_EQ(view_.owed(), 2);
}

TEST_F(DrafterViewTest, ACommitThatDiffersBeginsADebtAndMovesTheFence) {
  Take(MakeRun(3, 3, {7, 8, 9}));
  Commit({7, 6});
  EXPECT_TRUE(view_.owes());
  EXPECT_EQ(Take(MakeRun(6, 3, {5})), "overlapped 0 stale 1");
  EXPECT_EQ(Take(MakeRun(5, 4, {5})), "overlapped 0 stale 1");
  EXPECT_TRUE(view_.owes());
  EXPECT_EQ(Take(MakeRun(5, 5, {5})), "forward");
  EXPECT_FALSE(view_.owes());
}

TEST_F(DrafterViewTest, AnOpenDebtIsNotPutOffByFurtherCommits) {
  Commit({7});
  Commit({8});
  EXPECT_EQ(view_.owed(), 1);
}

TEST_F(DrafterViewTest, AnAnswerThatComesTooLateBeginsANewDebt) {
  Commit({7});
  Commit({8});
  // Right about the past, which is no longer news.
  EXPECT_EQ(Take(MakeRun(3, 3, {7, 8})), "overlapped 2 stale 0");
  EXPECT_TRUE(view_.owes());
  EXPECT_EQ(view_.owed(), 2);
  EXPECT_EQ(Take(MakeRun(5, 5, {})), "forward");
  EXPECT_FALSE(view_.owes());
}

TEST_F(DrafterViewTest, AMessageFromBeforeTheDebtDoesNotRenewIt) {
  Take(MakeRun(3, 3, {7}));
  Commit({7});  // Debt 2, for length 4.
  Commit({8});
  EXPECT_EQ(view_.owed(), 2);
  EXPECT_EQ(Take(MakeRun(4, 3, {8})), "overlapped 1 stale 0");
  EXPECT_EQ(view_.owed(), 2);
}

TEST_F(DrafterViewTest, AnOverlapThatAgreesIsPassedOnIfItBringsMore) {
  Commit({7, 8});
  EXPECT_EQ(Take(MakeRun(3, 3, {7, 8, 9})), "forward");
  EXPECT_EQ(view_.num_outstanding(), 1);
}

TEST_F(DrafterViewTest, AnOverlapThatDiffersIsStaleFromTheFirstDifference) {
  Commit({7, 8});
  EXPECT_EQ(Take(MakeRun(3, 3, {7, 6, 5})), "overlapped 1 stale 2");
  // The fence is 5: one past the first difference, not further.
  EXPECT_EQ(Take(MakeRun(6, 4, {5})), "overlapped 0 stale 1");
  EXPECT_EQ(Take(MakeRun(5, 5, {5})), "forward");
}

TEST_F(DrafterViewTest, TheFenceStopsAtTheFirstDifference) {
  Commit({7, 8, 9});
  EXPECT_EQ(Take(MakeRun(3, 3, {6, 6, 6})), "overlapped 0 stale 3");
  // Its answer to the commit of position 3 alone.
  EXPECT_EQ(Take(MakeRun(4, 4, {8, 9, 5})), "forward");
}

TEST_F(DrafterViewTest, ADuplicateBringsNothingNew) {
  Take(MakeRun(3, 3, {7, 8}));
  Take(MakeRun(5, 3, {9}));
  EXPECT_EQ(Take(MakeRun(3, 3, {7, 8})), "overlapped 0 stale 2");
  EXPECT_EQ(view_.num_outstanding(), 3);
}

TEST_F(DrafterViewTest, ARewindOwesAnAnswerAndSparesWhatWasSaid) {
  Take(MakeRun(3, 3, {7, 8, 9, 6}));
  view_.OnRewind(3);
  EXPECT_TRUE(view_.owes());
  EXPECT_EQ(view_.owed(), 2);
  EXPECT_EQ(view_.num_outstanding(), 0);
  EXPECT_EQ(Take(MakeRun(3, 3, {7, 8, 9, 6})), "forward");
  EXPECT_FALSE(view_.owes());
}

TEST_F(DrafterViewTest, ARunOnItsWayAcrossARewindIsAGapForTheNewVerifier) {
  Take(MakeRun(3, 3, {7, 8, 9, 6}));
  view_.OnRewind(3);
  EXPECT_EQ(Take(MakeRun(7, 3, {5, 4})), "overlapped 0 stale 2");
  EXPECT_TRUE(view_.owes());
  EXPECT_EQ(Take(MakeRun(3, 3, {7, 8, 9, 6})), "forward");
  EXPECT_EQ(Take(MakeRun(7, 3, {5, 4})), "forward");
  EXPECT_EQ(view_.num_outstanding(), 6);
}

TEST_F(DrafterViewTest, WhatWasSaidBeforeARewindStillCountsAgainstIt) {
  Take(MakeRun(3, 3, {7, 8}));
  view_.OnRewind(3);
  // The new verifier decodes plainly and finds the path wrong at position 4.
  Commit({7, 6});
  // The next run of the wrong path, on its way all the while, now begins just
  // where the log ends.
  EXPECT_EQ(Take(MakeRun(5, 3, {9, 9})), "overlapped 0 stale 2");
  // And the drafter, having seen the commits, says something else.
  EXPECT_EQ(Take(MakeRun(5, 5, {4, 4})), "forward");
}

TEST_F(DrafterViewTest, WhatWasBasedOnLessThanTheRewindIsNotPassedOn) {
  Commit({7});
  view_.OnRewind(4);
  EXPECT_EQ(Take(MakeRun(3, 3, {7, 8})), "overlapped 1 stale 1");
  EXPECT_EQ(Take(MakeRun(4, 3, {})), "overlapped 0 stale 0");
  EXPECT_TRUE(view_.owes());
  EXPECT_EQ(Take(MakeRun(4, 4, {8})), "forward");
}

// --- Drafters that cannot be trusted. ---

struct Malformed {
  std::string name;
  Proposal proposal;
  std::string message;
};

class DrafterViewMalformedTest : public testing::TestWithParam<Malformed> {};

TEST_P(DrafterViewMalformedTest, IsRefusedNamingTheField) {
  DrafterView view(100, 4, 8);
  view.OnOpened(3);
  const absl::StatusOr<DrafterView::Verdict> verdict =
      view.OnProposal(GetParam().proposal, {1, 2, 3});
  ASSERT_EQ(verdict.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(verdict.status().message()),
              HasSubstr(GetParam().message));
}

Proposal WithConfidence(float confidence) {
  Proposal proposal = MakeRun(3, 3, {7});
  proposal.confidence = confidence;
  return proposal;
}

INSTANTIATE_TEST_SUITE_P(
    Fields,
    DrafterViewMalformedTest,
    testing::Values(
        Malformed{"TooManyTokens",
                  MakeRun(3, 3, {1, 1, 1, 1, 1}),
                  "proposal.tokens must have at most run_length = 4"},
        Malformed{"TokenOutsideVocabulary",
                  MakeRun(3, 3, {100}),
                  "proposal.tokens must be in [0, 100), got 100"},
        Malformed{"NegativeToken",
                  MakeRun(3, 3, {-1}),
                  "proposal.tokens must be in [0, 100), got -1"},
        Malformed{"NegativePosition",
                  MakeRun(-1, 3, {1}),
                  "proposal.position must be in [0, 10]"},
        Malformed{"BeyondTheWindow",
                  MakeRun(9, 3, {1, 1, 1}),
                  "proposal.position must be in [0, 8]"},
        Malformed{"FarBeyondTheWindow",
                  MakeRun(std::numeric_limits<int32_t>::max(), 3, {1}),
                  "proposal.position must be in [0, 10]"},
        Malformed{"EmptyBeyondTheWindow",
                  MakeRun(12, 3, {}),
                  "proposal.position must be in [0, 11]"},
        Malformed{"BasedOnBeyondTheLog",
                  MakeRun(3, 4, {1}),
                  "proposal.based_on must be in [0, 3]"},
        Malformed{"NegativeBasedOn",
                  MakeRun(3, -1, {1}),
                  "proposal.based_on must be in [0, 3]"},
        Malformed{"ContradictsWhatItWasTold",
                  MakeRun(2, 3, {4, 7}),
                  "contradict what was committed or proposed for position 2"},
        Malformed{"ConfidenceAboveOne",
                  WithConfidence(1.5f),
                  "proposal.confidence must be in [0, 1]"},
        Malformed{"ConfidenceNegative",
                  WithConfidence(-.5f),
                  "proposal.confidence must be in [0, 1]"},
        Malformed{"ConfidenceNotANumber",
                  WithConfidence(std::numeric_limits<float>::quiet_NaN()),
                  "proposal.confidence must be in [0, 1]"}),
    [](const testing::TestParamInfo<Malformed>& malformed) {
      return malformed.param.name;
    });

TEST_F(DrafterViewTest, ADrafterMayNotChangeItsMindWithoutACommit) {
  Take(MakeRun(3, 3, {7, 8}));
  EXPECT_THAT(Take(MakeRun(4, 3, {9})),
              HasSubstr("contradict what was committed or proposed for "
                        "position 4"));
}

TEST_F(DrafterViewTest, MoreMessagesThanEventsCallForAreAFlood) {
  // A window of two runs, and one more for each event, beside the spare ones.
  for (int i = 0; i < 64 + 4; ++i) {
    ASSERT_EQ(Take(MakeRun(3, 3, {})), "forward") << i;
  }
  EXPECT_THAT(Take(MakeRun(3, 3, {})), HasSubstr("more proposals than"));
}

TEST_F(DrafterViewTest, DistributionsBelongToTheRatioRule) {
  Proposal proposal = MakeRun(3, 3, {7, 8});
  proposal.q = {{{7}, {1.0f}}, {{2, 8}, {.5f, .5f}}};
  EXPECT_THAT(Take(proposal), HasSubstr("proposal.q must have 0 entries"));
  const auto ratio = [this](const Proposal& p) {
    view_ = DrafterView(100, 4, 4, AcceptanceRule::kRatio);
    view_.OnOpened(3);
    return Take(p);
  };
  EXPECT_EQ(ratio(proposal), "forward");
  EXPECT_EQ(ratio(MakeRun(3, 3, {})), "forward");
  EXPECT_THAT(ratio(MakeRun(3, 3, {7, 8})),
              HasSubstr("proposal.q must have 2 entries"));
  proposal.q[1].probabilities[0] = .6f;
  EXPECT_THAT(ratio(proposal), HasSubstr("sum to 1"));
  proposal.q[1] = {{2, 100}, {.5f, .5f}};
  EXPECT_THAT(ratio(proposal), HasSubstr("100"));
}

TEST_F(DrafterViewTest, EveryCommitCallsForMoreMessages) {
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(Take(MakeRun(static_cast<int>(log_.size()),
                             static_cast<int>(log_.size()),
                             {})),
                "forward");
    }
    Commit({7});
  }
}

}  // namespace
}  // namespace specwire::coordinator
