// SPDX-License-Identifier: Apache-2.0
#include "coordinator/request_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/coordinator/request_machine_test_util.h"

namespace specwire::coordinator {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// --- Start. ---

TEST(RequestMachineTest, ResumedTokensStandInTheLogFromTheStart) {
  RequestParams params = Params();
  params.resumed = {7, 8};
  RequestMachine machine(params);
  EXPECT_THAT(
      Text(machine.Start()),
      ElementsAre("OpenDrafter 1 [1 2 3 7 8]",
                  "ArmDrafterTimer 1 owed 1",
                  "OpenVerifier [1 2 3 7 8] source 1 until 105 patience inf"
                  " rows 4"));
  EXPECT_THAT(
      Text(machine.OnCommit(MakeCommit(5, {9}))),
      ElementsAre("EmitTokens #2 [9] accepted 0", "SendCommit 1 @5 [9]"));
  EXPECT_EQ(machine.figures().num_passes, 1);
}

TEST(RequestMachineTest, MaxTokensCountsResumedTokens) {
  RequestParams params = Params();
  params.speculation.enabled = false;
  params.max_tokens = 3;
  params.resumed = {7, 8};
  RequestMachine machine = MakeStarted(params);
  EXPECT_THAT(Text(machine.OnCommit(MakeCommit(5, {9}))),
              ElementsAre("EmitTokens #2 [9] accepted 0",
                          "CloseVerifier",
                          "FinishRequest length"));
  params.resumed = {7, 8, 9};
  EXPECT_THAT(Text(RequestMachine(params).Start()),
              ElementsAre("FinishRequest length"));
}

TEST(RequestMachineTest, StopThatResumedTokensHaveMetEndsAtOnce) {
  RequestParams params = Params();
  params.max_tokens = 2;
  params.resumed = {7, 8};
  params.resumed_stop = 8;
  RequestMachine machine(params);
  EXPECT_THAT(Text(machine.Start()), ElementsAre("FinishRequest stop 8"));
  EXPECT_TRUE(machine.finished());
  EXPECT_EQ(machine.figures().num_passes, 0);
}

TEST(RequestMachineTest, StartOpensTheDrafterAndTheVerifier) {
  RequestMachine machine(Params());
  EXPECT_THAT(Text(machine.Start()),
              ElementsAre("OpenDrafter 1 [1 2 3]",
                          "ArmDrafterTimer 1 owed 1",
                          "OpenVerifier [1 2 3] source 1 until 103 patience inf"
                          " rows 4"));
}

TEST(RequestMachineTest, StartWithoutSpeculationOpensTheVerifierAlone) {
  RequestParams params = Params();
  params.speculation.enabled = false;
  RequestMachine machine(params);
  EXPECT_THAT(Text(machine.Start()),
              ElementsAre("OpenVerifier [1 2 3] source 0 until 103 patience 0"
                          " rows 0"));
  EXPECT_THAT(machine.OnDrafterAvailable(), IsEmpty());
}

TEST(RequestMachineTest, StartWithNothingToGenerateFinishes) {
  RequestParams params = Params();
  params.max_tokens = 0;
  RequestMachine machine(params);
  EXPECT_THAT(Text(machine.Start()), ElementsAre("FinishRequest length"));
  EXPECT_TRUE(machine.finished());
}

// --- Commits. ---

TEST(RequestMachineTest, ACommitIsEmittedAndToldToTheDrafter) {
  RequestMachine machine = MakeStarted();
  machine.OnProposal(MakeRun(1, 3, 3, {7, 8}));
  EXPECT_THAT(Text(machine.OnCommit(MakeCommit(3, {7, 8, 9}, 2, 2))),
              ElementsAre("EmitTokens #0 [7 8 9] accepted 2",
                          "SendCommit 1 @3 [7 8 9]",
                          "ArmDrafterTimer 1 owed 2"));
  EXPECT_THAT(machine.log(), ElementsAre(1, 2, 3, 7, 8, 9));
}

TEST(RequestMachineTest, ACommitThatLeavesSomethingOutstandingArmsNoTimer) {
  RequestMachine machine = MakeStarted();
  machine.OnProposal(MakeRun(1, 3, 3, {7, 8}));
  EXPECT_THAT(
      Text(machine.OnCommit(MakeCommit(3, {7}, 0, 0))),
      ElementsAre("EmitTokens #0 [7] accepted 0", "SendCommit 1 @3 [7]"));
}

TEST(RequestMachineTest, ARepeatedCommitIsDropped) {
  RequestMachine machine = MakeStarted();
  machine.OnCommit(MakeCommit(3, {7}));
  EXPECT_THAT(machine.OnCommit(MakeCommit(3, {7})), IsEmpty());
  EXPECT_EQ(machine.figures().num_passes, 1);
}

TEST(RequestMachineTest, AnOverlappingCommitAddsWhatIsNew) {
  RequestMachine machine = MakeStarted();
  machine.OnProposal(MakeRun(1, 3, 3, {7, 8}));
  machine.OnProposal(MakeRun(1, 5, 3, {9, 6}));
  machine.OnCommit(MakeCommit(3, {7}));
  EXPECT_THAT(
      Text(machine.OnCommit(MakeCommit(3, {7, 8, 9}, 3, 3))),
      ElementsAre("EmitTokens #1 [8 9] accepted 2", "SendCommit 1 @4 [8 9]"));
  EXPECT_EQ(machine.figures().num_accepted_draft_tokens, 2);
}

TEST(RequestMachineTest, TheLimitFinishesTheRequest) {
  RequestParams params = Params();
  params.max_tokens = 2;
  RequestMachine machine = MakeStarted(params);
  Commit last = MakeCommit(3, {7, 8}, 0, 0);
  last.tokens = {7};
  machine.OnCommit(last);
  last = MakeCommit(4, {8});
  last.finish = FinishReason::kLength;
  EXPECT_THAT(Text(machine.OnCommit(last)),
              ElementsAre("EmitTokens #1 [8] accepted 0",
                          "CloseDrafter 1",
                          "CloseVerifier",
                          "FinishRequest length"));
  EXPECT_TRUE(machine.finished());
}

TEST(RequestMachineTest, TheLimitFinishesEvenIfTheVerifierDoesNotSaySo) {
  RequestParams params = Params();
  params.max_tokens = 1;
  RequestMachine machine = MakeStarted(params);
  EXPECT_THAT(Text(machine.OnCommit(MakeCommit(3, {7}))),
              ElementsAre("EmitTokens #0 [7] accepted 0",
                          "CloseDrafter 1",
                          "CloseVerifier",
                          "FinishRequest length"));
}

TEST(RequestMachineTest, AStopTokenFinishesTheRequest) {
  RequestMachine machine = MakeStarted();
  Commit last = MakeCommit(3, {99});
  last.finish = FinishReason::kStop;
  last.stop_token_id = 99;
  EXPECT_THAT(Text(machine.OnCommit(last)),
              ElementsAre("EmitTokens #0 [99] accepted 0",
                          "CloseDrafter 1",
                          "CloseVerifier",
                          "FinishRequest stop 99"));
}

// --- Stop texts. ---

// Stops at token 50; remembers what it was asked about.
TokenJudge StopAtFifty(std::vector<int32_t>* asked = nullptr) {
  return [asked](int32_t token) {
    if (asked != nullptr) asked->push_back(token);
    return token == 50;
  };
}

TEST(RequestMachineTest, AStopTextEndsTheRequestAtEveryIndexOfARun) {
  // The verifier verified four draft tokens, all right, and added its own.
  for (int at = 0; at < 5; ++at) {
    for (const int accepted : {0, 2, 4}) {
      RequestParams params = Params();
      params.speculation.run_length = 4;
      params.speculation.window = 4;
      RequestMachine machine(params, StopAtFifty());
      machine.Start();
      machine.OnProposal(MakeRun(1, 3, 3, {10, 11, 12, 13}));
      std::vector<int32_t> tokens = {10, 11, 12, 13, 14};
      tokens[static_cast<size_t>(at)] = 50;
      std::vector<int32_t> kept = tokens;
      kept.resize(static_cast<size_t>(at) + 1);
      const int counted = std::min(accepted, at + 1);
      EXPECT_THAT(
          Text(machine.OnCommit(MakeCommit(3, tokens, 4, accepted))),
          ElementsAre(
              absl::StrCat("EmitTokens #0 ", Ids(kept), " accepted ", counted),
              "CloseDrafter 1",
              "CloseVerifier",
              "FinishRequest stop text"));
      EXPECT_EQ(machine.log().size(), 3 + kept.size());
      const SpeculationFigures& figures = machine.figures();
      EXPECT_EQ(figures.num_passes, 1);
      EXPECT_EQ(figures.num_draft_tokens, 4);
      EXPECT_EQ(figures.num_accepted_draft_tokens, counted);
      EXPECT_EQ(figures.acceptance_histogram[static_cast<size_t>(counted)], 1);
      int64_t places = 0;
      for (const int64_t n : figures.accepted_tokens_per_position) places += n;
      EXPECT_EQ(places, counted);
    }
  }
}

TEST(RequestMachineTest, TheEarliestOfStopTextLimitAndStopTokenWins) {
  // A run of five: the text at one index, the verifier's finish at another.
  for (int text = 0; text < 5; ++text) {
    for (int end = 0; end < 5; ++end) {
      for (const FinishReason reason :
           {FinishReason::kStop, FinishReason::kLength}) {
        SCOPED_TRACE(absl::StrCat(text, " ", end));
        RequestParams params = Params();
        params.speculation.enabled = false;
        params.max_tokens = reason == FinishReason::kLength ? end + 1 : 10;
        std::vector<int32_t> asked;
        RequestMachine machine(params, StopAtFifty(&asked));
        machine.Start();
        // A plain verifier, a token a pass.
        std::string last;
        int index = 0;
        for (; !machine.finished(); ++index) {
          Commit commit = MakeCommit(3 + index, {index == text ? 50 : 7});
          if (index == end) {
            commit.finish = reason;
            if (reason == FinishReason::kStop) commit.stop_token_id = 7;
          }
          last = Text(machine.OnCommit(commit)).back();
        }
        // At the same index a stop token comes first, then a stop text, then
        // the limit.
        const bool by_text =
            text < end || (text == end && reason == FinishReason::kLength);
        EXPECT_EQ(index, std::min(text, end) + 1);
        EXPECT_EQ(last,
                  by_text                           ? "FinishRequest stop text"
                  : reason == FinishReason::kLength ? "FinishRequest length"
                                                    : "FinishRequest stop 7");
        EXPECT_EQ(asked.size() + (last == "FinishRequest stop 7" ? 1 : 0),
                  static_cast<size_t>(index));
      }
    }
  }
}

TEST(RequestMachineTest, TheJudgeIsAskedAboutNewTokensOnly) {
  RequestParams params = Params();
  params.speculation.enabled = false;
  params.resumed = {50, 8};
  std::vector<int32_t> asked;
  RequestMachine machine(params, StopAtFifty(&asked));
  machine.Start();
  machine.OnCommit(MakeCommit(5, {9}));
  machine.OnCommit(MakeCommit(5, {9}));
  // A commit that contradicts the log is not judged.
  machine.OnCommit(MakeCommit(5, {10, 50}, 1));
  machine.OnCommit(MakeCommit(6, {11}));
  EXPECT_THAT(asked, ElementsAre(9, 11));
}

TEST(RequestMachineTest, StopTextThatResumedTokensHaveMetEndsAtOnce) {
  RequestParams params = Params();
  params.max_tokens = 2;
  params.resumed = {7, 8};
  params.resumed_stop_text = true;
  RequestMachine machine(params, StopAtFifty());
  EXPECT_THAT(Text(machine.Start()), ElementsAre("FinishRequest stop text"));
}

TEST(RequestMachineTest, AFinishMayComeAlone) {
  RequestMachine machine = MakeStarted();
  Commit last = MakeCommit(3, {});
  last.finish = FinishReason::kLength;
  EXPECT_THAT(
      Text(machine.OnCommit(last)),
      ElementsAre("CloseDrafter 1", "CloseVerifier", "FinishRequest length"));
}

TEST(RequestMachineTest, NothingHappensAfterTheFinish) {
  RequestMachine machine = MakeStarted();
  machine.OnClientGone(absl::CancelledError("gone"));
  EXPECT_THAT(machine.OnCommit(MakeCommit(3, {7})), IsEmpty());
  EXPECT_THAT(machine.OnProposal(MakeRun(1, 3, 3, {7})), IsEmpty());
  EXPECT_THAT(machine.OnVerifierClosed(kCrash, true), IsEmpty());
  EXPECT_THAT(machine.OnVerifierClosed(kCrash, false), IsEmpty());
  EXPECT_THAT(machine.OnDrafterClosed(1, kCrash, true), IsEmpty());
  EXPECT_THAT(machine.OnDrafterAvailable(), IsEmpty());
  EXPECT_THAT(machine.OnDrafterTimeout(1, 1), IsEmpty());
  EXPECT_THAT(machine.OnClientTook(1), IsEmpty());
  EXPECT_THAT(machine.OnClientGone(kCrash), IsEmpty());
}

struct BadCommit {
  std::string name;
  std::function<void(Commit*)> change;
};

class RequestMachineBadCommitTest : public testing::TestWithParam<BadCommit> {};

// The machine has forwarded two draft tokens and holds 1 2 3 | 7; the commit
// would be right but for one change.
TEST_P(RequestMachineBadCommitTest, LosesTheVerifier) {
  RequestMachine machine = MakeStarted();
  machine.OnProposal(MakeRun(1, 3, 3, {7, 8}));
  machine.OnCommit(MakeCommit(3, {7}));
  Commit commit = MakeCommit(4, {8, 9}, 1, 1);
  commit.counters.overlapped = 1;
  GetParam().change(&commit);
  EXPECT_THAT(Text(machine.OnCommit(commit)),
              ElementsAre("CloseVerifier",
                          "OpenVerifier [1 2 3 7] source 1 until 103 patience"
                          " inf rows 4",
                          "SendRewind 1 @4",
                          "ArmDrafterTimer 1 owed 2"));
  EXPECT_THAT(machine.log(), ElementsAre(1, 2, 3, 7));
  EXPECT_EQ(machine.figures().num_draft_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Changes,
    RequestMachineBadCommitTest,
    testing::Values(
        BadCommit{"Gap", [](Commit* c) { c->position = 5; }},
        BadCommit{"NegativePosition", [](Commit* c) { c->position = -1; }},
        BadCommit{"Contradiction",
                  [](Commit* c) {
                    c->position = 3;
                    c->tokens = {6, 8};
                  }},
        BadCommit{"Empty",
                  [](Commit* c) {
                    c->tokens.clear();
                    c->num_accepted = 0;
                  }},
        BadCommit{"TokenOutsideVocabulary",
                  [](Commit* c) { c->tokens[1] = 100; }},
        BadCommit{"NegativeToken", [](Commit* c) { c->tokens[1] = -1; }},
        BadCommit{"BeyondMaxTokens",
                  [](Commit* c) { c->tokens.assign(10, 8); }},
        BadCommit{"MoreTokensThanRowsAllow",
                  [](Commit* c) {
                    c->tokens = {8, 9, 9};
                  }},
        BadCommit{"AcceptedBeyondProposed",
                  [](Commit* c) { c->num_accepted = 2; }},
        BadCommit{"NegativeAccepted", [](Commit* c) { c->num_accepted = -1; }},
        BadCommit{"AcceptedBeyondTokens",
                  [](Commit* c) {
                    c->tokens.clear();
                    c->finish = FinishReason::kStop;
                  }},
        BadCommit{"MoreVerifiedThanSent",
                  [](Commit* c) { c->num_proposed = 2; }},
        BadCommit{"CountersBeyondSent",
                  [](Commit* c) { c->counters.stale = 1; }},
        BadCommit{"NegativeCounters",
                  [](Commit* c) { c->counters.trimmed = -1; }},
        BadCommit{"UnknownFinish",
                  [](Commit* c) { c->finish = FinishReason::kError; }}),
    [](const testing::TestParamInfo<BadCommit>& bad) {
      return bad.param.name;
    });

TEST(RequestMachineTest, CountersThatFallLoseTheVerifier) {
  RequestMachine machine = MakeStarted();
  machine.OnProposal(MakeRun(1, 3, 3, {7, 8}));
  Commit commit = MakeCommit(3, {7});
  commit.counters.overlapped = 1;
  machine.OnCommit(commit);
  EXPECT_THAT(Text(machine.OnCommit(MakeCommit(4, {8}))),
              testing::Contains("CloseVerifier"));
}

TEST(RequestMachineTest, CountersAreHeldAgainstWhatThisVerifierWasSent) {
  RequestMachine machine = MakeStarted();
  machine.OnProposal(MakeRun(1, 3, 3, {7, 8}));
  machine.OnVerifierClosed(absl::UnavailableError("crashed"), true);
  Commit commit = MakeCommit(3, {7});
  commit.counters.stale = 1;
  EXPECT_THAT(Text(machine.OnCommit(commit)),
              testing::Contains("CloseVerifier"));
}

// --- Proposals. ---

TEST(RequestMachineTest, AProposalIsPassedOn) {
  RequestMachine machine = MakeStarted();
  EXPECT_THAT(Text(machine.OnProposal(MakeRun(1, 3, 3, {7, 8}))),
              ElementsAre("SendProposal 1 @3 [7 8]"));
}

TEST(RequestMachineTest, AnEmptyProposalIsPassedOn) {
  RequestMachine machine = MakeStarted();
  EXPECT_THAT(Text(machine.OnProposal(MakeRun(1, 3, 3, {}))),
              ElementsAre("SendProposal 1 @3 []"));
}

TEST(RequestMachineTest, AProposalOfAnEarlierStreamIsStale) {
  RequestMachine machine = MakeStarted();
  machine.OnDrafterClosed(1, kCrash, true);
  EXPECT_THAT(machine.OnProposal(MakeRun(1, 3, 3, {7, 8})), IsEmpty());
  EXPECT_EQ(machine.figures().num_drafted_tokens, 2);
  EXPECT_EQ(machine.figures().num_stale_tokens, 2);
}

TEST(RequestMachineTest, AMalformedProposalLosesTheDrafter) {
  RequestMachine machine = MakeStarted();
  EXPECT_THAT(Text(machine.OnProposal(MakeRun(1, 3, 3, {7, 100}))),
              ElementsAre("CloseDrafter 1",
                          "SendDecodeTune patience 0",
                          "OpenDrafter 2 [1 2 3]",
                          "ArmDrafterTimer 2 owed 2"));
  EXPECT_EQ(machine.figures().num_stale_tokens, 2);
}

TEST(RequestMachineTest, AFloodLosesTheDrafter) {
  RequestMachine machine = MakeStarted();
  int passed = 0;
  while (passed < 1000) {
    const std::vector<std::string> text =
        Text(machine.OnProposal(MakeRun(1, 3, 3, {})));
    if (text.front() == "CloseDrafter 1") {
      break;
    }
    ++passed;
  }
  EXPECT_EQ(passed, 68);
}

// --- Credit and the client. ---

TEST(RequestMachineTest, CreditIsRaisedWhenLessThanHalfIsLeft) {
  RequestParams params = Params();
  params.credit = 4;
  RequestMachine machine = MakeStarted(params);  // Until 7.
  for (int i = 0; i < 4; ++i) {
    machine.OnCommit(MakeCommit(3 + i, {7}));
  }
  EXPECT_THAT(machine.OnClientTook(2), IsEmpty());  // Half is left.
  EXPECT_THAT(Text(machine.OnClientTook(3)),
              ElementsAre("SendDecodeTune until 10"));
  EXPECT_THAT(Text(machine.OnVerifierClosed(kCrash, true)).front(),
              HasSubstr("until 10"));
}

TEST(RequestMachineTest, ACreditOfOneGoesOnTokenByToken) {
  RequestParams params = Params();
  params.credit = 1;
  RequestMachine machine = MakeStarted(params);
  machine.OnCommit(MakeCommit(3, {7}));
  EXPECT_THAT(Text(machine.OnClientTook(1)),
              ElementsAre("SendDecodeTune until 5"));
}

TEST(RequestMachineTest, TheClientCannotTakeWhatItWasNotGiven) {
  RequestParams params = Params();
  params.credit = 4;
  RequestMachine machine = MakeStarted(params);
  machine.OnCommit(MakeCommit(3, {7}));
  EXPECT_THAT(machine.OnClientTook(1000), IsEmpty());
  EXPECT_THAT(machine.OnClientTook(-5), IsEmpty());
}

TEST(RequestMachineTest, AClientThatHasGoneEndsTheRequest) {
  RequestMachine machine = MakeStarted();
  EXPECT_THAT(
      Text(machine.OnClientGone(absl::DeadlineExceededError("too late"))),
      ElementsAre("CloseDrafter 1",
                  "CloseVerifier",
                  "FinishRequest aborted DEADLINE_EXCEEDED: too late"));
}

TEST(RequestMachineTest, AClientThatHasGoneInPeaceIsCancelled) {
  RequestMachine machine = MakeStarted();
  EXPECT_THAT(Text(machine.OnClientGone(absl::OkStatus())),
              testing::Contains(HasSubstr("CANCELLED")));
}

// --- Figures. ---

TEST(RequestMachineTest, FiguresOfPassesFollowTheCommits) {
  RequestMachine machine = MakeStarted();
  machine.OnProposal(MakeRun(1, 3, 3, {7, 8}));
  machine.OnCommit(MakeCommit(3, {7, 8, 9}, 2, 2));
  machine.OnProposal(MakeRun(1, 6, 6, {5, 5}));
  machine.OnCommit(MakeCommit(6, {5, 4}, 2, 1));
  machine.OnCommit(MakeCommit(8, {3}));  // Plain.
  machine.OnProposal(MakeRun(1, 9, 9, {1}));
  machine.OnCommit(MakeCommit(9, {2}, 1, 0));
  const SpeculationFigures& figures = machine.figures();
  EXPECT_EQ(figures.num_passes, 4);
  EXPECT_EQ(figures.num_spec_steps, 3);
  EXPECT_EQ(figures.num_draft_tokens, 5);
  EXPECT_EQ(figures.num_accepted_draft_tokens, 3);
  EXPECT_THAT(figures.acceptance_histogram, ElementsAre(1, 1, 1));
  EXPECT_THAT(figures.draft_tokens_per_position, ElementsAre(3, 2));
  EXPECT_THAT(figures.accepted_tokens_per_position, ElementsAre(2, 1));
}

TEST(RequestMachineTest, CountersOfAllVerifiersAddUp) {
  RequestMachine machine = MakeStarted();
  machine.OnProposal(MakeRun(1, 3, 3, {7, 8}));
  machine.OnProposal(MakeRun(1, 5, 3, {9, 9}));
  Commit commit = MakeCommit(3, {7, 8, 6}, 2, 2);
  commit.counters.stale = 2;
  machine.OnCommit(commit);
  machine.OnVerifierClosed(kCrash, true);
  machine.OnProposal(MakeRun(1, 6, 6, {5, 5}));
  commit = MakeCommit(6, {5}, 0, 0);
  commit.counters.overlapped = 1;
  machine.OnCommit(commit);
  commit.position = 7;  // The latest counters, not their sum.
  commit.counters.trimmed = 1;
  machine.OnCommit(commit);
  const SpeculationFigures& figures = machine.figures();
  EXPECT_EQ(figures.num_stale_tokens, 2);
  EXPECT_EQ(figures.num_overlapped_tokens, 1);
  EXPECT_EQ(figures.num_trimmed_tokens, 1);
}

TEST(RequestMachineTest, WhatNobodyReportsIsUnusedAtTheEnd) {
  RequestMachine machine = MakeStarted();
  machine.OnProposal(MakeRun(1, 3, 3, {7, 8}));
  machine.OnProposal(MakeRun(1, 5, 3, {9, 9}));
  machine.OnProposal(MakeRun(1, 3, 3, {7}));     // A duplicate.
  machine.OnProposal(MakeRun(0, 3, 3, {1, 1}));  // An earlier stream.
  machine.OnCommit(MakeCommit(3, {7, 8}, 1, 1));
  machine.OnClientGone(kCrash);
  const SpeculationFigures& figures = machine.figures();
  EXPECT_EQ(figures.num_drafted_tokens, 7);
  EXPECT_EQ(figures.num_draft_tokens, 1);
  EXPECT_EQ(figures.num_stale_tokens, 3);
  EXPECT_EQ(figures.num_unused_tokens, 3);
}

}  // namespace
}  // namespace specwire::coordinator
