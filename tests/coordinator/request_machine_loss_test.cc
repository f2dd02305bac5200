// SPDX-License-Identifier: Apache-2.0

// Verifiers and drafters that are lost, and what goes on without them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/request_machine.h"
#include "tests/coordinator/request_machine_test_util.h"

namespace specwire::coordinator {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// --- Verifiers lost. ---

TEST(RequestMachineTest, ALostVerifierIsReplacedAndTheDrafterRewound) {
  RequestMachine machine = MakeStarted();
  machine.OnProposal(MakeRun(1, 3, 3, {7, 8}));
  machine.OnCommit(MakeCommit(3, {7}));
  EXPECT_THAT(Text(machine.OnVerifierClosed(kCrash, true)),
              ElementsAre("OpenVerifier [1 2 3 7] source 1 until 103 patience"
                          " inf rows 4",
                          "SendRewind 1 @4",
                          "ArmDrafterTimer 1 owed 2"));
}

TEST(RequestMachineTest, APlainRequestMovesWithoutARewind) {
  RequestMachine machine = MakeStarted();
  machine.OnDrafterClosed(1, kCrash, false);
  EXPECT_THAT(Text(machine.OnVerifierClosed(kCrash, true)),
              ElementsAre("OpenVerifier [1 2 3] source 1 until 103 patience 0"
                          " rows 4"));
}

class RequestMachineCodeTest
    : public testing::TestWithParam<std::pair<absl::StatusCode, bool>> {};

TEST_P(RequestMachineCodeTest, MovesOrFails) {
  const auto [code, moves] = GetParam();
  RequestMachine machine = MakeStarted();
  const std::vector<std::string> text =
      Text(machine.OnVerifierClosed(absl::Status(code, "why"), true));
  ASSERT_FALSE(text.empty());
  if (moves) {
    EXPECT_THAT(text.front(), StartsWith("OpenVerifier"));
  } else {
    EXPECT_THAT(
        text,
        ElementsAre("CloseDrafter 1",
                    absl::StrCat("FinishRequest error ",
                                 absl::Status(code, "why").ToString())));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Codes,
    RequestMachineCodeTest,
    testing::Values(std::pair(absl::StatusCode::kUnavailable, true),
                    std::pair(absl::StatusCode::kInternal, true),
                    std::pair(absl::StatusCode::kUnknown, true),
                    std::pair(absl::StatusCode::kAborted, true),
                    std::pair(absl::StatusCode::kCancelled, true),
                    // Ended in peace, without a finish.
                    std::pair(absl::StatusCode::kOk, true),
                    std::pair(absl::StatusCode::kInvalidArgument, false),
                    std::pair(absl::StatusCode::kResourceExhausted, false),
                    std::pair(absl::StatusCode::kDeadlineExceeded, false),
                    std::pair(absl::StatusCode::kFailedPrecondition, false),
                    std::pair(absl::StatusCode::kUnimplemented, false)));

TEST(RequestMachineTest, MovesAtMostSoManyTimes) {
  RequestMachine machine = MakeStarted();
  EXPECT_THAT(Text(machine.OnVerifierClosed(kCrash, true)).front(),
              StartsWith("OpenVerifier"));
  EXPECT_THAT(Text(machine.OnVerifierClosed(kCrash, true)).front(),
              StartsWith("OpenVerifier"));
  EXPECT_THAT(Text(machine.OnVerifierClosed(kCrash, true)),
              ElementsAre("CloseDrafter 1",
                          "FinishRequest error UNAVAILABLE: the request lost 3 "
                          "verifiers; the last: UNAVAILABLE: crashed"));
}

TEST(RequestMachineTest, MovesFromNodesThatDrainAreNotCounted) {
  RequestMachine machine = MakeStarted();
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(Text(machine.OnVerifierClosed(kDrained, true)).front(),
                StartsWith("OpenVerifier"));
  }
  machine.OnVerifierClosed(kCrash, true);
  machine.OnVerifierClosed(kCrash, true);
  EXPECT_THAT(Text(machine.OnVerifierClosed(kCrash, true)).back(),
              StartsWith("FinishRequest error"));
}

TEST(RequestMachineTest, FailsWithTheReasonIfThereIsNoVerifier) {
  RequestMachine machine = MakeStarted();
  EXPECT_THAT(Text(machine.OnVerifierClosed(
                  absl::NotFoundError("no verifier serves model X"), false)),
              ElementsAre("CloseDrafter 1",
                          "FinishRequest error UNAVAILABLE: no verifier serves "
                          "model X"));
}

// --- Drafters lost and found. ---

TEST(RequestMachineTest, ALostDrafterIsReplacedAndNobodyWaitsMeanwhile) {
  RequestMachine machine = MakeStarted();
  machine.OnCommit(MakeCommit(3, {7}));
  EXPECT_THAT(Text(machine.OnDrafterClosed(1, kCrash, true)),
              ElementsAre("SendDecodeTune patience 0",
                          "OpenDrafter 2 [1 2 3 7]",
                          "ArmDrafterTimer 2 owed 2"));
}

TEST(RequestMachineTest, ADrafterThatDrainsIsNotLost) {
  RequestMachine machine = MakeStarted();
  const absl::Status drains = DrainingError("the node drains");
  // More often than drafters may be lost.
  for (int32_t source = 1; source <= 20; ++source) {
    EXPECT_THAT(Text(machine.OnDrafterClosed(source, drains, true)),
                Contains(HasSubstr(absl::StrCat("OpenDrafter ", source + 1))));
  }
}

TEST(RequestMachineTest, TheNextDraftersFirstWordRestoresPatience) {
  RequestMachine machine = MakeStarted();
  machine.OnDrafterClosed(1, kCrash, true);
  EXPECT_THAT(
      Text(machine.OnProposal(MakeRun(2, 3, 3, {7}))),
      ElementsAre("SendDecodeTune patience inf", "SendProposal 2 @3 [7]"));
  EXPECT_THAT(Text(machine.OnProposal(MakeRun(2, 4, 3, {8}))),
              ElementsAre("SendProposal 2 @4 [8]"));
}

TEST(RequestMachineTest, AFirstWordThatComesTooLateRestoresPatienceToo) {
  RequestMachine machine = MakeStarted();
  machine.OnDrafterClosed(1, kCrash, true);
  machine.OnCommit(MakeCommit(3, {6}));
  // Stale; but the verifier may wait, as the drafter owes its next word.
  EXPECT_THAT(
      Text(machine.OnProposal(MakeRun(2, 3, 3, {7}))),
      ElementsAre("SendDecodeTune patience inf", "ArmDrafterTimer 2 owed 3"));
}

TEST(RequestMachineTest, AMoveWhileTheDrafterIsReplacedKeepsPatienceAtZero) {
  RequestMachine machine = MakeStarted();
  machine.OnDrafterClosed(1, kCrash, true);
  EXPECT_THAT(Text(machine.OnVerifierClosed(kCrash, true)),
              ElementsAre("OpenVerifier [1 2 3] source 2 until 103 patience 0"
                          " rows 4",
                          "SendRewind 2 @3",
                          "ArmDrafterTimer 2 owed 3"));
}

TEST(RequestMachineTest, PatienceZeroNeedsNoTune) {
  RequestParams params = Params();
  params.speculation.patience = absl::ZeroDuration();
  RequestMachine machine = MakeStarted(params);
  EXPECT_THAT(Text(machine.OnDrafterClosed(1, kCrash, true)),
              ElementsAre("OpenDrafter 2 [1 2 3]", "ArmDrafterTimer 2 owed 2"));
}

TEST(RequestMachineTest, WithoutADraftNodeItGoesOnPlainUntilOneJoins) {
  RequestMachine machine = MakeStarted();
  EXPECT_THAT(Text(machine.OnDrafterClosed(1, kCrash, false)),
              ElementsAre("SendDecodeTune patience 0"));
  EXPECT_THAT(Text(machine.OnCommit(MakeCommit(3, {7}))),
              ElementsAre("EmitTokens #0 [7] accepted 0"));
  EXPECT_THAT(
      Text(machine.OnDrafterAvailable()),
      ElementsAre("OpenDrafter 2 [1 2 3 7]", "ArmDrafterTimer 2 owed 2"));
  EXPECT_THAT(machine.OnDrafterAvailable(), IsEmpty());
}

TEST(RequestMachineTest, TheEndOfAnEarlierDraftStreamIsNoNews) {
  RequestMachine machine = MakeStarted();
  machine.OnDrafterClosed(1, kCrash, true);
  EXPECT_THAT(machine.OnDrafterClosed(1, kCrash, true), IsEmpty());
}

TEST(RequestMachineTest, ADrafterThatKeepsFailingIsGivenUp) {
  RequestMachine machine = MakeStarted();
  for (int32_t source = 1; source <= 8; ++source) {
    EXPECT_THAT(Text(machine.OnDrafterClosed(source, kCrash, true)),
                testing::Contains(
                    absl::StrCat("OpenDrafter ", source + 1, " [1 2 3]")));
  }
  EXPECT_THAT(machine.OnDrafterClosed(9, kCrash, true), IsEmpty());
  EXPECT_THAT(machine.OnDrafterAvailable(), IsEmpty());
}

TEST(RequestMachineTest, ADrafterThatOwesAnAnswerForTooLongIsLost) {
  RequestMachine machine = MakeStarted();
  EXPECT_THAT(Text(machine.OnDrafterTimeout(1, 1)),
              ElementsAre("CloseDrafter 1",
                          "SendDecodeTune patience 0",
                          "OpenDrafter 2 [1 2 3]",
                          "ArmDrafterTimer 2 owed 2"));
}

// The ratio rule: a drafter that takes over is waited for from its open on, so
// that no position has a proposal or not by how fast it came.

RequestParams RatioParams() {
  RequestParams params = Params();
  params.speculation.rule = AcceptanceRule::kRatio;
  params.speculation.window = params.speculation.run_length;
  return params;
}

TEST(RequestMachineTest, RatioStaysInLockStepWhileADrafterTakesOver) {
  RequestMachine machine = MakeStarted(RatioParams());
  EXPECT_THAT(Text(machine.OnDrafterTimeout(1, 1)),
              ElementsAre("CloseDrafter 1",
                          "OpenDrafter 2 [1 2 3]",
                          "ArmDrafterTimer 2 owed 2"));
}

TEST(RequestMachineTest, RatioGoesOnPlainOnlyWithoutADrafter) {
  RequestMachine machine = MakeStarted(RatioParams());
  EXPECT_THAT(Text(machine.OnDrafterClosed(1, kCrash, false)),
              ElementsAre("SendDecodeTune patience 0"));
  EXPECT_THAT(Text(machine.OnDrafterAvailable()),
              ElementsAre("SendDecodeTune patience inf",
                          "OpenDrafter 2 [1 2 3]",
                          "ArmDrafterTimer 2 owed 2"));
  for (int32_t source = 2; source < 9; ++source) {
    EXPECT_THAT(Text(machine.OnDrafterClosed(source, kCrash, true)),
                testing::Contains(StartsWith("OpenDrafter")));
  }
  machine.OnDrafterClosed(9, kCrash, true);
  // The ninth that was lost is the last one.
  EXPECT_THAT(Text(machine.OnDrafterClosed(10, kCrash, true)),
              ElementsAre("SendDecodeTune patience 0"));
}

TEST(RequestMachineTest, RatioReplacesADrafterThatSendsNoDistribution) {
  RequestMachine machine = MakeStarted(RatioParams());
  EXPECT_THAT(Text(machine.OnProposal(MakeRun(1, 3, 3, {7}))),
              ElementsAre("CloseDrafter 1",
                          "OpenDrafter 2 [1 2 3]",
                          "ArmDrafterTimer 2 owed 2"));
  EXPECT_EQ(machine.figures().num_stale_tokens, 1);
}

TEST(RequestMachineTest, ATimeoutOfADebtThatWasSettledIsNoNews) {
  RequestMachine machine = MakeStarted();
  machine.OnProposal(MakeRun(1, 3, 3, {7}));
  EXPECT_THAT(machine.OnDrafterTimeout(1, 1), IsEmpty());
  machine.OnCommit(MakeCommit(3, {7, 8}, 1, 1));  // Debt 2.
  EXPECT_THAT(machine.OnDrafterTimeout(1, 1), IsEmpty());
  EXPECT_FALSE(machine.OnDrafterTimeout(1, 2).empty());
}

TEST(RequestMachineTest, ATimeoutOfAnEarlierDrafterIsNoNews) {
  RequestMachine machine = MakeStarted();
  machine.OnDrafterClosed(1, kCrash, true);
  EXPECT_THAT(machine.OnDrafterTimeout(1, 1), IsEmpty());
  EXPECT_THAT(machine.OnDrafterTimeout(1, 2), IsEmpty());
}

}  // namespace
}  // namespace specwire::coordinator
