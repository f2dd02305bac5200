// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/verify_sequence.h"

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

namespace specwire::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// --- Passes. ---

TEST(VerifySequenceTest, AcceptsARunAndAddsTheBonusToken) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 8})).ok());
  const Commit commit = Step(&sequence, {7, 8, 9});
  EXPECT_EQ(commit.position, 3);
  EXPECT_THAT(commit.tokens, ElementsAre(7, 8, 9));
  EXPECT_EQ(commit.num_proposed, 2);
  EXPECT_EQ(commit.num_accepted, 2);
  EXPECT_EQ(commit.finish, FinishReason::kNone);
  EXPECT_EQ(commit.counters, DecodeCounters());
  EXPECT_THAT(sequence.log(), ElementsAre(1, 2, 3, 7, 8, 9));
}

TEST(VerifySequenceTest, ARejectedRowIsVerifiedAndWhatFollowsIsDropped) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 8, 9, 6, 6})).ok());
  const Commit commit = Step(&sequence, {7, 5, 0, 0});
  EXPECT_THAT(commit.tokens, ElementsAre(7, 5));
  EXPECT_EQ(commit.num_proposed, 3);
  EXPECT_EQ(commit.num_accepted, 1);
  // The two that were not verified are stale.
  EXPECT_EQ(commit.counters.stale, 2);
  EXPECT_THAT(sequence.pending(), IsEmpty());
}

TEST(VerifySequenceTest, AMatchBehindARejectionDoesNotCount) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 8, 9})).ok());
  const Commit commit = Step(&sequence, {4, 8, 9, 5});
  EXPECT_THAT(commit.tokens, ElementsAre(4));
  EXPECT_EQ(commit.num_accepted, 0);
}

TEST(VerifySequenceTest, ARejectionMovesTheFencePastIt) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 8})).ok());
  Step(&sequence, {7, 5, 0});  // Length 5.
  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 4, {6})).ok());
  EXPECT_THAT(sequence.pending(), IsEmpty());
  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 5, {6})).ok());
  EXPECT_THAT(sequence.pending(), ElementsAre(6));
}

TEST(VerifySequenceTest, ABonusTokenThatWasProposedLeavesTheRestPending) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 8, 9, 6})).ok());
  const Commit commit = Step(&sequence, {7, 8, 9});
  EXPECT_THAT(commit.tokens, ElementsAre(7, 8, 9));
  EXPECT_EQ(commit.num_proposed, 2);
  EXPECT_EQ(commit.num_accepted, 2);
  EXPECT_EQ(commit.counters.overlapped, 1);
  EXPECT_THAT(sequence.pending(), ElementsAre(6));
}

TEST(VerifySequenceTest, ABonusTokenThatDiffersDropsTheRestAndMovesTheFence) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 8, 9, 6})).ok());
  const Commit commit = Step(&sequence, {7, 8, 5});
  EXPECT_EQ(commit.num_accepted, 2);
  EXPECT_EQ(commit.counters.stale, 2);
  ASSERT_TRUE(sequence.OnProposal(MakeRun(6, 5, {6})).ok());
  EXPECT_THAT(sequence.pending(), IsEmpty());
}

TEST(VerifySequenceTest, APlainPassComparesItsTokenWithWhatIsPending) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 8})).ok());
  const Commit commit = Step(&sequence, {7});  // A row budget of 0.
  EXPECT_EQ(commit.num_proposed, 0);
  EXPECT_EQ(commit.num_accepted, 0);
  EXPECT_EQ(commit.counters.overlapped, 1);
  EXPECT_THAT(sequence.pending(), ElementsAre(8));
}

TEST(VerifySequenceTest, AFullyAcceptedRunDoesNotMoveTheFence) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 8})).ok());
  Step(&sequence, {7, 8, 9});
  // Drafted before the commit was seen, and right.
  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 3, {9, 6})).ok());
  EXPECT_THAT(sequence.pending(), ElementsAre(6));
  EXPECT_EQ(sequence.counters().overlapped, 1);
}

TEST(VerifySequenceTest, RowsAreCutByBudgetCapLimitAndCredit) {
  VerifyParams params = Params();
  params.max_draft_rows = 6;
  params.decode_until = 8;
  VerifySequence sequence = MakeSequence(params);
  ASSERT_TRUE(
      sequence.OnProposal(MakeRun(3, 3, std::vector<int32_t>(19, 7))).ok());
  EXPECT_EQ(sequence.BeginStep(3).size(), 3u);   // The engine's budget.
  EXPECT_EQ(sequence.BeginStep(99).size(), 4u);  // Credit: positions 3 to 7.
  VerifyTune tune;
  tune.decode_until = 100;
  ASSERT_TRUE(sequence.OnTune(tune).ok());
  EXPECT_EQ(sequence.BeginStep(99).size(), 6u);  // max_draft_rows.
  tune.max_draft_rows = 256;
  ASSERT_TRUE(sequence.OnTune(tune).ok());
  EXPECT_EQ(sequence.BeginStep(99).size(), 19u);  // The hard limit, 23.
  EXPECT_EQ(sequence.BeginStep(-1).size(), 0u);
  // A budget cut is not a loss.
  EXPECT_EQ(sequence.counters(), DecodeCounters());
}

// --- Stops. ---

// A run of four accepted tokens and a bonus, with a stop token at one index
// (5: none) and the limit at another (5: beyond the run).
class VerifySequenceStopTest
    : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(VerifySequenceStopTest, TheEarliestWinsAndWhatLiesBehindIsDropped) {
  const auto [stop_at, limit_at] = GetParam();
  VerifyParams params = Params();
  params.stop_token_ids = {99};
  VerifyLimits limits = kLimits;
  // The limit falls on the token at index limit_at, now by max_tokens, now by
  // the context.
  if (limit_at % 2 == 0) {
    params.max_tokens = limit_at + 1;
  } else {
    limits.max_model_len = 3 + limit_at + 1;
  }
  std::vector<int32_t> text = {10, 11, 12, 13, 14};
  if (stop_at < 5) {
    text[static_cast<size_t>(stop_at)] = 99;
  }
  absl::StatusOr<VerifySequence> opened = VerifySequence::Open(params, limits);
  ASSERT_TRUE(opened.ok());
  VerifySequence& sequence = *opened;
  ASSERT_TRUE(
      sequence.OnProposal(MakeRun(3, 3, {text.begin(), text.begin() + 4}))
          .ok());
  const int rows = std::min(4, limit_at);
  EXPECT_EQ(sequence.counters().trimmed, 4 - rows);
  ASSERT_EQ(sequence.BeginStep(99).size(), static_cast<size_t>(rows));
  const Commit commit =
      sequence.FinishStep({text.data(), static_cast<size_t>(rows) + 1}, Ms(0));
  const int last = std::min({stop_at, limit_at, rows});
  EXPECT_EQ(commit.tokens,
            std::vector<int32_t>(text.begin(), text.begin() + last + 1));
  EXPECT_EQ(commit.num_proposed, rows);
  EXPECT_EQ(commit.num_accepted, std::min(last + 1, rows));
  EXPECT_EQ(static_cast<int>(sequence.log().size()), 3 + last + 1);
  const bool stopped = stop_at <= limit_at && stop_at < 5;
  const bool limited = !stopped && limit_at < 5;
  EXPECT_EQ(commit.finish,
            stopped   ? FinishReason::kStop
            : limited ? FinishReason::kLength
                      : FinishReason::kNone);
  EXPECT_EQ(commit.stop_token_id,
            stopped ? std::optional<int32_t>(99) : std::nullopt);
  EXPECT_EQ(sequence.done(), stopped || limited);
  EXPECT_EQ(NextKind(sequence) == Kind::kDone, sequence.done());
}

INSTANTIATE_TEST_SUITE_P(EachIndex,
                         VerifySequenceStopTest,
                         testing::Combine(testing::Range(0, 6),
                                          testing::Range(0, 6)));

TEST(VerifySequenceTest, AStopTokenBehindARejectionIsNotSeen) {
  VerifyParams params = Params();
  params.stop_token_ids = {99};
  VerifySequence sequence = MakeSequence(params);
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 99})).ok());
  const Commit commit = Step(&sequence, {6, 99, 99});
  EXPECT_THAT(commit.tokens, ElementsAre(6));
  EXPECT_EQ(commit.finish, FinishReason::kNone);
}

TEST(VerifySequenceTest, AStopTokenThatIsTheTargetsOwnIsNotAccepted) {
  VerifyParams params = Params();
  params.stop_token_ids = {98, 99};
  VerifySequence sequence = MakeSequence(params);
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 8})).ok());
  const Commit commit = Step(&sequence, {98, 0, 0});
  EXPECT_THAT(commit.tokens, ElementsAre(98));
  EXPECT_EQ(commit.num_accepted, 0);
  EXPECT_EQ(commit.finish, FinishReason::kStop);
  EXPECT_EQ(commit.stop_token_id, 98);
}

TEST(VerifySequenceTest, IgnoresProposalsOnceDone) {
  VerifyParams params = Params();
  params.max_tokens = 1;
  VerifySequence sequence = MakeSequence(params);
  EXPECT_EQ(Step(&sequence, {7}).finish, FinishReason::kLength);
  EXPECT_TRUE(sequence.OnProposal(MakeRun(4, 4, {8})).ok());
  EXPECT_THAT(sequence.pending(), IsEmpty());
  EXPECT_EQ(sequence.counters(), DecodeCounters());
  EXPECT_EQ(NextKind(sequence), Kind::kDone);
}

// --- When to step. ---

TEST(VerifySequenceTest, LockStepWaitsWithoutEnd) {
  VerifySequence sequence = MakeSequence();
  sequence.OnPrefilled(Ms(5));
  const VerifySequence::Next next = sequence.NextAt(Ms(1000000));
  EXPECT_EQ(next.kind, Kind::kWait);
  EXPECT_EQ(next.at, absl::InfiniteFuture());
}

TEST(VerifySequenceTest, PatienceZeroNeverWaits) {
  VerifyParams params = Params();
  params.patience = absl::ZeroDuration();
  VerifySequence sequence = MakeSequence(params);
  sequence.OnPrefilled(Ms(5));
  EXPECT_EQ(NextKind(sequence, 5), Kind::kRun);
}

TEST(VerifySequenceTest, PatienceCountsFromTheEndOfTheLastStep) {
  VerifyParams params = Params();
  params.patience = absl::Milliseconds(10);
  VerifySequence sequence = MakeSequence(params);
  sequence.OnPrefilled(Ms(5));
  EXPECT_EQ(NextKind(sequence, 14), Kind::kWait);
  EXPECT_EQ(sequence.NextAt(Ms(14)).at, Ms(15));
  EXPECT_EQ(NextKind(sequence, 15), Kind::kRun);
  sequence.BeginStep(9);
  sequence.FinishStep({7}, Ms(40));
  EXPECT_EQ(NextKind(sequence, 49), Kind::kWait);
  EXPECT_EQ(NextKind(sequence, 50), Kind::kRun);
}

TEST(VerifySequenceTest, AProposalEndsTheWait) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7})).ok());
  EXPECT_EQ(NextKind(sequence), Kind::kRun);
}

TEST(VerifySequenceTest, AStaleProposalDoesNotEndTheWait) {
  VerifySequence sequence = AtFive();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 2, {7})).ok());
  EXPECT_EQ(NextKind(sequence), Kind::kWait);
}

TEST(VerifySequenceTest, ATuneOfPatienceEndsTheWait) {
  VerifySequence sequence = MakeSequence();
  VerifyTune tune;
  tune.patience = absl::ZeroDuration();
  ASSERT_TRUE(sequence.OnTune(tune).ok());
  EXPECT_EQ(NextKind(sequence), Kind::kRun);
}

TEST(VerifySequenceTest, AnEmptyProposalAtTheEndOfTheLogMeansPlainNow) {
  VerifySequence sequence = AtFive();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 5, {})).ok());
  EXPECT_EQ(NextKind(sequence), Kind::kRun);
  const Commit commit = Step(&sequence, {12});
  EXPECT_EQ(commit.num_proposed, 0);
  // It held for one step.
  EXPECT_EQ(NextKind(sequence), Kind::kWait);
}

TEST(VerifySequenceTest, AnEmptyProposalElsewhereDoesNotCount) {
  VerifySequence sequence = AtFive();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(4, 4, {})).ok());
  ASSERT_TRUE(sequence.OnProposal(MakeRun(6, 5, {})).ok());
  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 2, {})).ok());     // Fence.
  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 5, {}, 0)).ok());  // Source.
  EXPECT_EQ(NextKind(sequence), Kind::kWait);
}

TEST(VerifySequenceTest, AnEmptyProposalBehindWhatIsPendingHoldsForItsStep) {
  VerifySequence sequence = AtFive();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 5, {7})).ok());
  ASSERT_TRUE(sequence.OnProposal(MakeRun(6, 5, {})).ok());
  EXPECT_THAT(sequence.pending(), ElementsAre(7));
  Step(&sequence, {7, 8});
  EXPECT_EQ(NextKind(sequence), Kind::kWait);
}

TEST(VerifySequenceTest, AnotherDrafterUnsaysPlainNow) {
  VerifySequence sequence = AtFive();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 5, {})).ok());
  // Its word on a position that is long committed.
  ASSERT_TRUE(sequence.OnProposal(MakeRun(4, 4, {}, 2)).ok());
  EXPECT_EQ(NextKind(sequence), Kind::kWait);
}

TEST(VerifySequenceTest, RunsPlainWhereNoRowCouldBeVerified) {
  VerifyParams params = Params();
  params.max_tokens = 1;  // The only position left is the target's own.
  EXPECT_EQ(NextKind(MakeSequence(params)), Kind::kRun);
  params = Params();
  params.max_draft_rows = 0;
  EXPECT_EQ(NextKind(MakeSequence(params)), Kind::kRun);
  params = Params();
  params.decode_until = 4;  // Credit for one token.
  EXPECT_EQ(NextKind(MakeSequence(params)), Kind::kRun);
}

TEST(VerifySequenceTest, IsBlockedWithoutCreditUntilATuneRaisesIt) {
  VerifyParams params = Params();
  params.decode_until = 4;
  VerifySequence sequence = MakeSequence(params);
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 8, 9})).ok());
  // The last position within credit is the target's own.
  const Commit commit = Step(&sequence, {7});
  EXPECT_THAT(commit.tokens, ElementsAre(7));
  EXPECT_EQ(NextKind(sequence), Kind::kBlocked);
  EXPECT_THAT(sequence.pending(), ElementsAre(8, 9));
  VerifyTune tune;
  tune.decode_until = 6;
  ASSERT_TRUE(sequence.OnTune(tune).ok());
  EXPECT_EQ(NextKind(sequence), Kind::kRun);
  EXPECT_EQ(sequence.BeginStep(9).size(), 1u);
}

TEST(VerifySequenceTest, IsBlockedIfOpenedBeyondItsCredit) {
  VerifyParams params = Params();
  params.decode_until = 2;
  params.patience = absl::ZeroDuration();
  EXPECT_EQ(NextKind(MakeSequence(params)), Kind::kBlocked);
}

// --- Anything at all. ---

// Whatever well-formed proposals come, the text is the target's and the books
// balance.
TEST(VerifySequenceTest, NoProposalChangesTheTextOrUpsetsTheCounts) {
  uint64_t state = 1;
  const auto below = [&state](int n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int>((state >> 33) % static_cast<uint64_t>(n));
  };
  // The target's token at a position; three values, so that guesses hit.
  const auto target = [](size_t position) {
    return static_cast<int32_t>((position * position / 3) % 3);
  };
  for (int round = 0; round < 20000; ++round) {
    VerifyParams params = Params();
    params.max_tokens = 1 + below(20);
    params.patience = absl::ZeroDuration();
    params.decode_until = 3 + below(30);
    VerifySequence sequence = MakeSequence(params);
    int64_t received = 0;
    int64_t rows = 0;
    while (!sequence.done()) {
      for (int i = below(4); i > 0; --i) {
        const int length = static_cast<int>(sequence.log().size());
        Proposal p = MakeRun(std::max(0, length - 3 + below(10)),
                             length - std::min(length, below(4)),
                             {},
                             below(20) == 0 ? 2 : 1);
        for (int k = below(6); k > 0; --k) {
          const size_t at = static_cast<size_t>(p.position) + p.tokens.size();
          p.tokens.push_back(below(4) == 0 ? below(3) : target(at));
        }
        received += static_cast<int64_t>(p.tokens.size());
        ASSERT_TRUE(sequence.OnProposal(p).ok());
      }
      if (NextKind(sequence) == Kind::kBlocked) {
        VerifyTune tune;
        tune.decode_until =
            static_cast<int>(sequence.log().size()) + 1 + below(9);
        ASSERT_TRUE(sequence.OnTune(tune).ok());
      }
      ASSERT_EQ(NextKind(sequence), Kind::kRun);
      const size_t count = sequence.BeginStep(below(9)).size();
      rows += static_cast<int64_t>(count);
      std::vector<int32_t> row_targets;
      for (size_t i = 0; i <= count; ++i) {
        row_targets.push_back(target(sequence.log().size() + i));
      }
      const Commit commit = sequence.FinishStep(row_targets, Ms(0));
      ASSERT_EQ(commit.counters, sequence.counters());
      ASSERT_EQ(received,
                rows + commit.counters.overlapped + commit.counters.stale +
                    commit.counters.trimmed +
                    static_cast<int64_t>(sequence.pending().size()));
    }
    ASSERT_EQ(static_cast<int>(sequence.log().size()), 3 + params.max_tokens);
    for (size_t at = 3; at < sequence.log().size(); ++at) {
      ASSERT_EQ(sequence.log()[at], target(at)) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace specwire::verifier
