// SPDX-License-Identifier: Apache-2.0

// What a sequence is sent: how it opens, what it refuses, and what becomes of a
// proposal.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/verifier_node/verify_sequence_test_util.h"
#include "verifier_node/verify_sequence.h"

namespace specwire::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// --- Open, tune and malformed messages. ---

struct BadOpen {
  std::string name;
  std::function<void(VerifyParams*)> change;
  std::string message;
};

class VerifySequenceOpenTest : public testing::TestWithParam<BadOpen> {};

TEST_P(VerifySequenceOpenTest, RefusesNamingTheField) {
  VerifyParams params = Params();
  GetParam().change(&params);
  const absl::StatusOr<VerifySequence> sequence =
      VerifySequence::Open(params, kLimits);
  ASSERT_EQ(sequence.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(sequence.status().message()),
              HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Fields,
    VerifySequenceOpenTest,
    testing::Values(
        BadOpen{"NoTokens",
                [](VerifyParams* p) { p->tokens.clear(); },
                "tokens must not be empty"},
        BadOpen{"TokensBeyondContext",
                [](VerifyParams* p) { p->tokens.assign(64, 1); },
                "tokens must be shorter than max_model_len = 64, got 64"},
        BadOpen{"TokenOutsideVocabulary",
                [](VerifyParams* p) { p->tokens[1] = 100; },
                "tokens[1] must be in [0, 100), got 100"},
        BadOpen{"NegativeToken",
                [](VerifyParams* p) { p->tokens[2] = -1; },
                "tokens[2] must be in [0, 100), got -1"},
        BadOpen{"PromptLengthZero",
                [](VerifyParams* p) { p->prompt_length = 0; },
                "prompt_length must be in [1, 3]"},
        BadOpen{"PromptLengthBeyondTokens",
                [](VerifyParams* p) { p->prompt_length = 4; },
                "prompt_length must be in [1, 3]"},
        BadOpen{"NothingLeftToDecode",
                [](VerifyParams* p) {
                  p->prompt_length = 1;
                  p->max_tokens = 2;
                },
                "max_tokens must exceed the 2 completion tokens"},
        BadOpen{"MaxTokensZero",
                [](VerifyParams* p) { p->max_tokens = 0; },
                "max_tokens must exceed the 0 completion tokens"},
        BadOpen{"StopOutsideVocabulary",
                [](VerifyParams* p) {
                  p->stop_token_ids = {5, 100};
                },
                "stop_token_ids[1] must be in [0, 100), got 100"},
        BadOpen{"NegativeSource",
                [](VerifyParams* p) { p->source = -1; },
                "source must be at least 0"},
        BadOpen{"NegativeDecodeUntil",
                [](VerifyParams* p) { p->decode_until = -1; },
                "decode_until must be at least 0"},
        BadOpen{"NegativePatience",
                [](VerifyParams* p) { p->patience = -absl::Seconds(1); },
                "patience must not be negative"},
        BadOpen{"TooManyRows",
                [](VerifyParams* p) { p->max_draft_rows = 257; },
                "max_draft_rows must be in [0, 256], got 257"},
        BadOpen{"NegativeRows",
                [](VerifyParams* p) { p->max_draft_rows = -1; },
                "max_draft_rows must be in [0, 256], got -1"},
        BadOpen{"LocalRunTooLong",
                [](VerifyParams* p) { p->local_run_length = 33; },
                "local_run_length must be in [0, 32], got 33"},
        BadOpen{"NegativeLocalRun",
                [](VerifyParams* p) { p->local_run_length = -1; },
                "local_run_length must be in [0, 32], got -1"},
        BadOpen{"NegativeLocalEnough",
                [](VerifyParams* p) { p->local_enough = -0.5f; },
                "local_enough must be finite and at least 0, got -0.5"},
        BadOpen{"RatioRuleThatWaitsInSpiteOfLocalDrafts",
                [](VerifyParams* p) {
                  p->rule = AcceptanceRule::kRatio;
                  p->local_run_length = 4;
                },
                "patience must be 0 under the ratio rule with a "
                "local_run_length"}),
    [](const testing::TestParamInfo<BadOpen>& bad) { return bad.param.name; });

struct BadProposal {
  std::string name;
  Proposal proposal;
  std::string message;
};

class VerifySequenceMalformedTest : public testing::TestWithParam<BadProposal> {
};

TEST_P(VerifySequenceMalformedTest, IsRefusedAndChangesNothing) {
  VerifySequence sequence = AtFive();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 5, {7})).ok());
  const absl::Status status = sequence.OnProposal(GetParam().proposal);
  ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
  EXPECT_THAT(sequence.pending(), ElementsAre(7));
  EXPECT_EQ(sequence.counters(), DecodeCounters());
}

INSTANTIATE_TEST_SUITE_P(
    Fields,
    VerifySequenceMalformedTest,
    testing::Values(
        BadProposal{"TooManyTokens",
                    MakeRun(5, 5, std::vector<int32_t>(257, 1)),
                    "proposal.tokens must have at most 256 entries, got 257"},
        BadProposal{"TokenOutsideVocabulary",
                    MakeRun(5, 5, {1, 100}),
                    "proposal.tokens[1] must be in [0, 100), got 100"},
        BadProposal{"NegativeToken",
                    MakeRun(5, 5, {-1}),
                    "proposal.tokens[0] must be in [0, 100), got -1"},
        BadProposal{"NegativePosition",
                    MakeRun(-1, 5, {1}),
                    "proposal.position must be at least 0"},
        BadProposal{"NegativeSource",
                    MakeRun(5, 5, {1}, -1),
                    "proposal.source must be at least 0"},
        BadProposal{"NegativeBasedOn",
                    MakeRun(5, -1, {1}),
                    "proposal.based_on must be in [0, 5]"},
        BadProposal{"BasedOnBeyondTheLog",
                    MakeRun(5, 6, {1}),
                    "proposal.based_on must be in [0, 5]"}),
    [](const testing::TestParamInfo<BadProposal>& bad) {
      return bad.param.name;
    });

TEST(VerifySequenceTest, RefusesATuneThatTakesCreditBack) {
  VerifySequence sequence = MakeSequence();
  VerifyTune tune;
  tune.decode_until = 999;
  EXPECT_EQ(sequence.OnTune(tune).code(), absl::StatusCode::kInvalidArgument);
}

TEST(VerifySequenceTest, RefusesATuneWithANegativeNumberAndKeepsTheRest) {
  VerifySequence sequence = MakeSequence();
  VerifyTune tune;
  tune.patience = absl::ZeroDuration();
  tune.max_draft_rows = -1;
  EXPECT_EQ(sequence.OnTune(tune).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NextKind(sequence), Kind::kWait);
  tune.max_draft_rows = 4;
  tune.patience = -absl::Seconds(1);
  EXPECT_EQ(sequence.OnTune(tune).code(), absl::StatusCode::kInvalidArgument);
}

// --- What becomes of a proposal. ---

// On the log 1 2 3 10 11 with `first` taken before, one proposal.
struct Arrival {
  std::string name;
  std::vector<Proposal> first;
  Proposal proposal;
  std::vector<int32_t> pending;
  DecodeCounters counters;
};

class VerifySequenceArrivalTest : public testing::TestWithParam<Arrival> {};

TEST_P(VerifySequenceArrivalTest, IsTakenOrCounted) {
  VerifySequence sequence = AtFive();
  for (const Proposal& proposal : GetParam().first) {
    ASSERT_TRUE(sequence.OnProposal(proposal).ok());
  }
  ASSERT_TRUE(sequence.OnProposal(GetParam().proposal).ok());
  EXPECT_EQ(std::vector<int32_t>(sequence.pending().begin(),
                                 sequence.pending().end()),
            GetParam().pending);
  const DecodeCounters& counters = sequence.counters();
  EXPECT_EQ(counters.overlapped, GetParam().counters.overlapped);
  EXPECT_EQ(counters.stale, GetParam().counters.stale);
  EXPECT_EQ(counters.trimmed, GetParam().counters.trimmed);
}

INSTANTIATE_TEST_SUITE_P(
    Table,
    VerifySequenceArrivalTest,
    testing::Values(
        Arrival{"AtTheEndOfTheLog", {}, MakeRun(5, 5, {7, 8}), {7, 8}, {}},
        Arrival{"AtTheEndOfWhatIsPending",
                {MakeRun(5, 5, {7, 8})},
                MakeRun(7, 5, {9}),
                {7, 8, 9},
                {}},
        Arrival{"GapAfterTheLog", {}, MakeRun(6, 5, {7, 8}), {}, {0, 2, 0}},
        Arrival{"GapAfterWhatIsPending",
                {MakeRun(5, 5, {7})},
                MakeRun(7, 5, {8}),
                {7},
                {0, 1, 0}},
        Arrival{"BasedOnTheFence", {}, MakeRun(5, 3, {7}), {7}, {}},
        Arrival{
            "BasedOnLessThanTheFence", {}, MakeRun(5, 2, {7}), {}, {0, 1, 0}},
        Arrival{"OverlapThatAgrees",
                {},
                MakeRun(3, 3, {10, 11, 7}),
                {7},
                {2, 0, 0}},
        Arrival{"OverlapThatEndsWithTheLog",
                {},
                MakeRun(4, 4, {11}),
                {},
                {1, 0, 0}},
        Arrival{"OverlapInsideTheLogLeavesWhatIsPending",
                {MakeRun(5, 5, {7})},
                MakeRun(3, 3, {10}),
                {7},
                {1, 0, 0}},
        Arrival{"OverlapThatDiffersAtOnce",
                {},
                MakeRun(3, 3, {9, 11, 7}),
                {},
                {0, 3, 0}},
        Arrival{"OverlapThatDiffersLater",
                {},
                MakeRun(3, 3, {10, 9, 7}),
                {},
                {1, 2, 0}},
        Arrival{"OverlapThatDiffersClearsWhatIsPending",
                {MakeRun(5, 5, {7, 8})},
                MakeRun(4, 4, {9}),
                {},
                {0, 3, 0}},
        Arrival{"OverlapWithThePrompt",
                {},
                MakeRun(2, 3, {3, 10, 11, 7}),
                {7},
                {3, 0, 0}},
        Arrival{"ReplacesWhatIsPending",
                {MakeRun(5, 5, {7, 8, 9})},
                MakeRun(6, 5, {6}),
                {7, 6},
                {0, 2, 0}},
        Arrival{"ReplacesAllThatIsPending",
                {MakeRun(5, 5, {7, 8})},
                MakeRun(5, 5, {6}),
                {6},
                {0, 2, 0}},
        Arrival{"LowerSource", {}, MakeRun(5, 5, {7, 8}, 0), {}, {0, 2, 0}},
        Arrival{"HigherSource", {}, MakeRun(5, 5, {7}, 2), {7}, {}},
        Arrival{"HigherSourceClearsWhatIsPending",
                {MakeRun(5, 5, {7, 8})},
                MakeRun(5, 5, {6}, 2),
                {6},
                {0, 2, 0}},
        Arrival{"HigherSourceResetsTheFence",
                {},
                MakeRun(3, 0, {10, 11, 7}, 2),
                {7},
                {2, 0, 0}},
        Arrival{"SourceThatWasReplaced",
                {MakeRun(5, 5, {6}, 2)},
                MakeRun(5, 5, {7}, 1),
                {6},
                {0, 1, 0}},
        Arrival{"EmptyOfAHigherSourceClearsWhatIsPending",
                {MakeRun(5, 5, {7, 8})},
                MakeRun(5, 5, {}, 2),
                {},
                {0, 2, 0}},
        // The hard limit is 23; position 22 is the target's own.
        Arrival{"CutAtTheHardLimit",
                {MakeRun(5, 5, std::vector<int32_t>(16, 7))},
                MakeRun(21, 5, {8, 9, 9}),
                {7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8},
                {0, 0, 2}},
        Arrival{
            "BeyondTheHardLimit", {}, MakeRun(22, 5, {8, 9}), {}, {0, 0, 2}},
        Arrival{"GapAndCut", {}, MakeRun(20, 5, {8, 8, 9, 9}), {}, {0, 2, 2}},
        Arrival{"StaleIsNotCut", {}, MakeRun(21, 2, {8, 9, 9}), {}, {0, 3, 0}}),
    [](const testing::TestParamInfo<Arrival>& arrival) {
      return arrival.param.name;
    });

TEST(VerifySequenceTest, TheFenceMovesOnePastTheFirstDifference) {
  VerifySequence sequence = AtFive();
  // Differs at positions 3 and 4; the drafter's answer to the commit of
  // position 3 is based on 4 and must get through.
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {8, 8, 8})).ok());
  ASSERT_TRUE(sequence.OnProposal(MakeRun(6, 3, {7})).ok());
  EXPECT_EQ(sequence.counters().stale, 4);
  ASSERT_TRUE(sequence.OnProposal(MakeRun(4, 4, {11, 7})).ok());
  EXPECT_THAT(sequence.pending(), ElementsAre(7));
}

TEST(VerifySequenceTest, TheFenceNeverMovesBack) {
  VerifySequence sequence = AtFive();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(4, 3, {8})).ok());  // Fence 5.
  // Based on 5 tokens and wrong about one of them.
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 5, {8})).ok());
  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 4, {7})).ok());
  EXPECT_THAT(sequence.pending(), IsEmpty());
  EXPECT_EQ(sequence.counters().stale, 3);
}

TEST(VerifySequenceTest, WhatWasDraftedBeforeItOpenedIsStale) {
  VerifyParams params = Params();
  params.tokens = {1, 2, 3, 10, 11};
  VerifySequence sequence = MakeSequence(params);
  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 4, {7})).ok());
  EXPECT_EQ(sequence.counters().stale, 1);
  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 5, {7})).ok());
  EXPECT_THAT(sequence.pending(), ElementsAre(7));
}

}  // namespace
}  // namespace specwire::verifier
