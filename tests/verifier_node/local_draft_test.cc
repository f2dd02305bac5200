// SPDX-License-Identifier: Apache-2.0

// What VerifySequence does with drafts that the verifier looked up itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "verifier_node/verify_sequence.h"

namespace specwire::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = VerifySequence::Next::Kind;

constexpr VerifyLimits kLimits = {.vocab_size = 100, .max_model_len = 64};

absl::Time Ms(int64_t t) { return absl::FromUnixMillis(t); }

// A prompt of three tokens, room for 20 more, 10 ms of patience; a local draft
// is enough if it is expected to bring a token and a half.
VerifyParams Params() {
  VerifyParams params;
  params.tokens = {1, 2, 3};
  params.prompt_length = 3;
  params.max_tokens = 20;
  params.source = 1;
  params.decode_until = 1000;
  params.patience = absl::Milliseconds(10);
  params.local_run_length = 4;
  params.local_enough = 1.5f;
  return params;
}

VerifySequence MakeSequence(const VerifyParams& params = Params()) {
  absl::StatusOr<VerifySequence> sequence =
      VerifySequence::Open(params, kLimits);
  EXPECT_TRUE(sequence.ok()) << sequence.status();
  sequence->OnPrefilled(Ms(0));
  return *std::move(sequence);
}

Proposal MakeRun(int position, int based_on, std::vector<int32_t> tokens) {
  return {.source = 1,
          .position = position,
          .based_on = based_on,
          .tokens = std::move(tokens)};
}

// Expected to bring .9 tokens for each.
DraftRun Strong(std::vector<int32_t> tokens) {
  DraftRun run;
  run.survival.assign(tokens.size(), 0.9f);
  run.tokens = std::move(tokens);
  return run;
}

// Expected to bring .1.
DraftRun Weak(std::vector<int32_t> tokens) {
  DraftRun run;
  run.survival.assign(tokens.size(), 0.1f);
  run.tokens = std::move(tokens);
  return run;
}

std::vector<int32_t> Draft(VerifySequence* sequence, int max_rows = 99) {
  const auto rows = sequence->BeginStep(max_rows);
  return {rows.begin(), rows.end()};
}

Commit Finish(VerifySequence* sequence, const std::vector<int32_t>& target) {
  return sequence->FinishStep(target, Ms(0));
}

VerifyTune Enough(float local_enough) {
  VerifyTune tune;
  tune.local_enough = local_enough;
  return tune;
}

TEST(LocalDraftTest, IsVerifiedWhereNothingIsPending) {
  VerifySequence sequence = MakeSequence();
  sequence.SetLocalDraft(Weak({7, 8, 9}));
  EXPECT_EQ(sequence.num_step_rows(), 3);
  EXPECT_THAT(sequence.step_survival(), ElementsAre(0.1f, 0.1f, 0.1f));
  EXPECT_THAT(Draft(&sequence, 2), ElementsAre(7, 8));
  const Commit commit = Finish(&sequence, {7, 5, 0});
  EXPECT_TRUE(commit.local);
  EXPECT_THAT(commit.tokens, ElementsAre(7, 5));
  EXPECT_EQ(commit.num_proposed, 2);
  EXPECT_EQ(commit.num_accepted, 1);
  EXPECT_EQ(commit.counters, DecodeCounters());
}

TEST(LocalDraftTest, HoldsForOneStep) {
  VerifySequence sequence = MakeSequence();
  sequence.SetLocalDraft(Strong({7, 8, 9}));
  EXPECT_THAT(Draft(&sequence, 1), ElementsAre(7));
  Finish(&sequence, {7, 8});
  EXPECT_EQ(sequence.num_step_rows(), 0);
  EXPECT_THAT(sequence.step_survival(), IsEmpty());
  EXPECT_FALSE(sequence.LocalIsEnough());
}

TEST(LocalDraftTest, GivesWayToAProposalUnlessItIsEnough) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {6})).ok());
  sequence.SetLocalDraft(Strong({7}));
  EXPECT_FALSE(sequence.LocalIsEnough());
  EXPECT_THAT(sequence.step_survival(), IsEmpty());
  EXPECT_THAT(Draft(&sequence), ElementsAre(6));
  EXPECT_FALSE(Finish(&sequence, {6, 5}).local);

  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 5, {6})).ok());
  sequence.SetLocalDraft(Strong({7, 8}));
  EXPECT_TRUE(sequence.LocalIsEnough());
  EXPECT_EQ(sequence.step_survival().size(), 2u);
  EXPECT_THAT(Draft(&sequence), ElementsAre(7, 8));
  EXPECT_TRUE(Finish(&sequence, {7, 8, 9}).local);
}

TEST(LocalDraftTest, ATuneSaysWhatIsEnough) {
  VerifySequence sequence = MakeSequence();
  sequence.SetLocalDraft(Strong({7, 8}));
  ASSERT_TRUE(sequence.OnTune(Enough(1.9f)).ok());
  EXPECT_FALSE(sequence.LocalIsEnough());
  ASSERT_TRUE(sequence.OnTune(Enough(0)).ok());
  EXPECT_TRUE(sequence.LocalIsEnough());
  // Nothing is never enough.
  sequence.SetLocalDraft({});
  EXPECT_FALSE(sequence.LocalIsEnough());
}

TEST(LocalDraftTest, AnUnreasonableTuneIsRefused) {
  VerifySequence sequence = MakeSequence();
  for (const float bad : {-1.0f, std::stof("inf"), std::stof("nan")}) {
    const absl::Status status = sequence.OnTune(Enough(bad));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("local_enough"));
  }
  sequence.SetLocalDraft(Strong({7, 8}));
  EXPECT_TRUE(sequence.LocalIsEnough());
}

// --- When to step. ---

TEST(LocalDraftTest, OneThatIsEnoughEndsTheWaitAtOnce) {
  VerifySequence sequence = MakeSequence();
  EXPECT_EQ(sequence.NextAt(Ms(1)).kind, Kind::kWait);
  sequence.SetLocalDraft(Strong({7, 8}));
  EXPECT_EQ(sequence.NextAt(Ms(1)).kind, Kind::kRun);
}

TEST(LocalDraftTest, AWeakOneIsTakenWhenPatienceIsOver) {
  VerifySequence sequence = MakeSequence();
  sequence.SetLocalDraft(Weak({7, 8}));
  EXPECT_EQ(sequence.NextAt(Ms(9)).kind, Kind::kWait);
  EXPECT_EQ(sequence.NextAt(Ms(9)).at, Ms(10));
  // One that joins the pass of others early takes it too.
  EXPECT_EQ(sequence.num_step_rows(), 2);
  EXPECT_EQ(sequence.NextAt(Ms(10)).kind, Kind::kRun);
  EXPECT_THAT(Draft(&sequence), ElementsAre(7, 8));
}

TEST(LocalDraftTest, AnEmptyProposalEndsTheWaitForAWeakOne) {
  VerifySequence sequence = MakeSequence();
  sequence.SetLocalDraft(Weak({7, 8}));
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {})).ok());
  EXPECT_EQ(sequence.NextAt(Ms(1)).kind, Kind::kRun);
  EXPECT_THAT(Draft(&sequence), ElementsAre(7, 8));
}

TEST(LocalDraftTest, LockStepRunsAtOnceOnlyIfItIsEnough) {
  VerifyParams params = Params();
  params.patience = absl::InfiniteDuration();
  VerifySequence sequence = MakeSequence(params);
  sequence.SetLocalDraft(Weak({7, 8}));
  EXPECT_EQ(sequence.NextAt(Ms(1000)).kind, Kind::kWait);
  sequence.SetLocalDraft(Strong({7, 8}));
  EXPECT_EQ(sequence.NextAt(Ms(0)).kind, Kind::kRun);
  EXPECT_TRUE(sequence.lock_step());
}

TEST(LocalDraftTest, OneThatIsBeingMadeCountsAsWhatIsExpectedOfIt) {
  VerifySequence sequence = MakeSequence();
  sequence.ExpectLocalDraft(1.4f);
  EXPECT_FALSE(sequence.LocalIsEnough());
  EXPECT_EQ(sequence.NextAt(Ms(1)).kind, Kind::kWait);
  sequence.ExpectLocalDraft(1.5f);
  EXPECT_TRUE(sequence.LocalIsEnough());
  EXPECT_EQ(sequence.NextAt(Ms(1)).kind, Kind::kRun);
  // Whatever comes of it the step does not wait, but that step only.
  sequence.SetLocalDraft(Weak({7}));
  EXPECT_EQ(sequence.NextAt(Ms(1)).kind, Kind::kRun);
  EXPECT_THAT(Draft(&sequence), ElementsAre(7));
  Finish(&sequence, {8, 0});
  EXPECT_FALSE(sequence.LocalIsEnough());
  EXPECT_EQ(sequence.NextAt(Ms(1)).kind, Kind::kWait);
}

TEST(LocalDraftTest, NoneIsWantedWhereAProposalIsVerified) {
  VerifySequence sequence = MakeSequence();
  EXPECT_EQ(sequence.num_local_tokens_wanted(), 4);
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {6})).ok());
  EXPECT_EQ(sequence.num_local_tokens_wanted(), 0);
  sequence.ExpectLocalDraft(2);
  EXPECT_EQ(sequence.num_local_tokens_wanted(), 4);
  VerifyTune tune;
  tune.max_draft_rows = 0;
  ASSERT_TRUE(sequence.OnTune(tune).ok());
  EXPECT_EQ(sequence.num_local_tokens_wanted(), 0);
  EXPECT_FALSE(sequence.LocalIsEnough());
}

// --- Limits. ---

TEST(LocalDraftTest, IsCutByItsLengthByRowsByCreditAndByTheEnd) {
  VerifyParams params = Params();
  params.decode_until = 6;
  VerifySequence sequence = MakeSequence(params);
  const std::vector<int32_t> five = {7, 7, 7, 7, 7};
  sequence.SetLocalDraft(Strong(five));
  // Positions 3 and 4; the one at 5 is the target's own.
  EXPECT_EQ(sequence.num_step_rows(), 2);
  VerifyTune tune;
  tune.decode_until = 1000;
  ASSERT_TRUE(sequence.OnTune(tune).ok());
  EXPECT_EQ(sequence.num_step_rows(), 4);  // local_run_length
  tune.max_draft_rows = 1;
  ASSERT_TRUE(sequence.OnTune(tune).ok());
  EXPECT_EQ(sequence.num_step_rows(), 1);
  // What is expected is expected of what is left.
  EXPECT_FALSE(sequence.LocalIsEnough());

  params = Params();
  params.max_tokens = 3;
  sequence = MakeSequence(params);
  EXPECT_EQ(sequence.max_local_tokens(), 2);
  sequence.SetLocalDraft(Strong(five));
  EXPECT_EQ(sequence.num_step_rows(), 2);
}

TEST(LocalDraftTest, IsNotWantedWithoutALocalRunLength) {
  VerifyParams params = Params();
  params.local_run_length = 0;
  VerifySequence sequence = MakeSequence(params);
  EXPECT_EQ(sequence.max_local_tokens(), 0);
  sequence.SetLocalDraft(Strong({7, 8}));
  EXPECT_EQ(sequence.num_step_rows(), 0);
}

TEST(LocalDraftTest, AStopInsideItEndsTheSequence) {
  VerifyParams params = Params();
  params.stop_token_ids = {9};
  VerifySequence sequence = MakeSequence(params);
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 9, 8})).ok());
  sequence.SetLocalDraft(Strong({7, 9, 8}));
  Draft(&sequence);
  const Commit commit = Finish(&sequence, {7, 9, 8, 8});
  EXPECT_THAT(commit.tokens, ElementsAre(7, 9));
  EXPECT_EQ(commit.num_accepted, 2);
  EXPECT_EQ(commit.finish, FinishReason::kStop);
  // What nobody looks at any more is neither verified nor counted.
  EXPECT_EQ(commit.counters, DecodeCounters());
  EXPECT_EQ(sequence.pending().size(), 3u);
  EXPECT_EQ(sequence.max_local_tokens(), 0);
  sequence.SetLocalDraft(Strong({7, 8}));
  EXPECT_FALSE(sequence.LocalIsEnough());
}

// --- What becomes of what is pending. ---

TEST(LocalDraftTest, EqualTokensOverlapAndTheRestStaysPending) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 8, 9, 6, 6})).ok());
  sequence.SetLocalDraft(Strong({7, 8}));
  Draft(&sequence);
  const Commit commit = Finish(&sequence, {7, 8, 9});
  EXPECT_EQ(commit.counters.overlapped, 3);
  EXPECT_EQ(commit.counters.stale, 0);
  EXPECT_THAT(sequence.pending(), ElementsAre(6, 6));
  // The fence is where it was: a run that was on its way goes on.
  ASSERT_TRUE(sequence.OnProposal(MakeRun(8, 3, {5})).ok());
  EXPECT_THAT(sequence.pending(), ElementsAre(6, 6, 5));
}

TEST(LocalDraftTest, ARejectionMayConfirmWhatIsPending) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 8, 9})).ok());
  sequence.SetLocalDraft(Strong({7, 6, 6}));
  Draft(&sequence);
  const Commit commit = Finish(&sequence, {7, 8, 0, 0});
  EXPECT_EQ(commit.num_accepted, 1);
  EXPECT_EQ(commit.counters.overlapped, 2);
  EXPECT_THAT(sequence.pending(), ElementsAre(9));
}

TEST(LocalDraftTest, TheFirstDifferenceDropsTheRestAndMovesTheFence) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 5, 9, 6})).ok());
  sequence.SetLocalDraft(Strong({7, 8}));
  Draft(&sequence);
  const Commit commit = Finish(&sequence, {7, 8, 9});
  EXPECT_EQ(commit.counters.overlapped, 1);
  EXPECT_EQ(commit.counters.stale, 3);
  EXPECT_THAT(sequence.pending(), IsEmpty());
  ASSERT_TRUE(sequence.OnProposal(MakeRun(6, 5, {6})).ok());
  EXPECT_THAT(sequence.pending(), IsEmpty());
  ASSERT_TRUE(sequence.OnProposal(MakeRun(6, 6, {6})).ok());
  EXPECT_THAT(sequence.pending(), ElementsAre(6));
}

TEST(LocalDraftTest, APassWithoutARowForItIsAPlainOne) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {7, 6})).ok());
  sequence.SetLocalDraft(Strong({7, 8}));
  EXPECT_THAT(Draft(&sequence, 0), IsEmpty());
  const Commit commit = Finish(&sequence, {7});
  EXPECT_FALSE(commit.local);
  EXPECT_EQ(commit.counters.overlapped, 1);
  EXPECT_THAT(sequence.pending(), ElementsAre(6));
}

TEST(LocalDraftTest, SurvivalIsThatOfProposals) {
  VerifySequence sequence = MakeSequence();
  const double before = sequence.survival().Acceptance(0);
  sequence.SetLocalDraft(Strong({7, 8}));
  Draft(&sequence);
  Finish(&sequence, {6, 0, 0});
  EXPECT_EQ(sequence.survival().Acceptance(0), before);
  // What is compared teaches.
  ASSERT_TRUE(sequence.OnProposal(MakeRun(4, 4, {7})).ok());
  sequence.SetLocalDraft(Strong({7, 8}));
  Draft(&sequence);
  Finish(&sequence, {7, 8, 9});
  EXPECT_GT(sequence.survival().Acceptance(0), before);
}

// --- Anything at all. ---

// Whatever proposals, local drafts and tunes come, the text is the target's and
// the books of proposals balance.
TEST(LocalDraftTest, NoDraftChangesTheTextOrUpsetsTheCounts) {
  uint64_t state = 7;
  const auto below = [&state](int n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int>((state >> 33) % static_cast<uint64_t>(n));
  };
  // Three values, so that guesses hit.
  const auto target = [](size_t position) {
    return static_cast<int32_t>((position * position / 3) % 3);
  };
  const auto guess = [&](size_t position) {
    return below(4) == 0 ? below(3) : target(position);
  };
  int64_t num_local = 0;
  int64_t num_accepted_local = 0;
  int64_t num_compared = 0;
  for (int round = 0; round < 20000; ++round) {
    VerifyParams params = Params();
    params.max_tokens = 1 + below(20);
    params.patience = absl::Milliseconds(below(3));
    params.decode_until = 3 + below(30);
    params.local_run_length = below(6);
    VerifySequence sequence = MakeSequence(params);
    int64_t received = 0;
    int64_t rows = 0;
    while (!sequence.done()) {
      const size_t length = sequence.log().size();
      for (int i = below(3); i > 0; --i) {
        const int end = static_cast<int>(length);
        Proposal p = MakeRun(
            std::max(0, end - 3 + below(8)), end - std::min(end, below(4)), {});
        p.source = below(20) == 0 ? 2 : 1;
        for (int k = below(6); k > 0; --k) {
          const size_t at = static_cast<size_t>(p.position) + p.tokens.size();
          p.tokens.push_back(guess(at));
        }
        received += static_cast<int64_t>(p.tokens.size());
        ASSERT_TRUE(sequence.OnProposal(p).ok());
      }
      if (below(3) > 0) {
        DraftRun draft;
        for (int k = below(7); k > 0; --k) {
          draft.tokens.push_back(guess(length + draft.tokens.size()));
          draft.survival.push_back(0.5f);
        }
        sequence.SetLocalDraft(std::move(draft));
      }
      VerifyTune tune;
      if (below(4) == 0)
        tune.local_enough = 0.5f * static_cast<float>(below(4));
      if (below(4) == 0) tune.max_draft_rows = below(8);
      if (sequence.NextAt(Ms(2)).kind == Kind::kBlocked) {
        tune.decode_until = static_cast<int>(length) + 1 + below(9);
      }
      ASSERT_TRUE(sequence.OnTune(tune).ok());
      ASSERT_EQ(sequence.NextAt(Ms(2)).kind, Kind::kRun);
      const bool local = !sequence.step_survival().empty();
      const size_t num_pending = sequence.pending().size();
      ASSERT_EQ(local && num_pending > 0,
                num_pending > 0 && sequence.LocalIsEnough());
      const size_t count = sequence.BeginStep(below(9)).size();
      std::vector<int32_t> row_targets;
      for (size_t i = 0; i <= count; ++i) {
        row_targets.push_back(target(length + i));
      }
      const int64_t overlapped = sequence.counters().overlapped;
      const Commit commit = sequence.FinishStep(row_targets, Ms(0));
      ASSERT_EQ(commit.local, local && count > 0);
      ASSERT_EQ(commit.counters, sequence.counters());
      if (commit.local) {
        num_local += static_cast<int64_t>(count);
        num_accepted_local += commit.num_accepted;
        num_compared += commit.counters.overlapped - overlapped;
      } else {
        rows += static_cast<int64_t>(count);
      }
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
  // It was all there.
  EXPECT_GT(num_accepted_local, 10000);
  EXPECT_GT(num_local, num_accepted_local);
  EXPECT_GT(num_compared, 1000);
}

}  // namespace
}  // namespace specwire::verifier
