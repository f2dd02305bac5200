// SPDX-License-Identifier: Apache-2.0

// What a verifier tells of a traced sequence: the fate of each draft token by
// its number, and what the target thinks of it.

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/verifier_node/verify_sequence_test_util.h"
#include "verifier_node/target_sampler.h"
#include "verifier_node/verify_sequence.h"

namespace specwire::verifier {
namespace {

VerifyParams TracedParams() {
  VerifyParams params = Params();
  params.max_tokens = 8;
  params.local_run_length = 4;
  params.trace = true;
  return params;
}

// A commit's fates, "number" or "=token" and the outcome's letter each.
std::string Fates(const Commit& commit) {
  const char kNames[] = "ARDOSTU";
  std::string text;
  if (!commit.trace.has_value()) return "none";
  for (const DraftFate& fate : commit.trace->drafts) {
    absl::StrAppend(&text,
                    fate.number.has_value() ? absl::StrCat(*fate.number)
                                            : absl::StrCat("=", fate.token_id),
                    std::string(1, kNames[static_cast<int>(fate.outcome)]),
                    " ");
  }
  return text;
}

class TracedSequenceTest : public testing::Test {
 protected:
  explicit TracedSequenceTest(const VerifyParams& params = TracedParams())
      : sequence_(*VerifySequence::Open(params, {100, 64})) {}

  void Propose(const Proposal& proposal) {
    const absl::Status status = sequence_.OnProposal(proposal);
    EXPECT_TRUE(status.ok()) << status;
  }
  Commit Step(const std::vector<int32_t>& target) {
    sequence_.BeginStep(static_cast<int>(target.size()) - 1);
    return sequence_.FinishStep(target, absl::UnixEpoch());
  }

  VerifySequence sequence_;
};

TEST_F(TracedSequenceTest, TellsOfVerifiedTokens) {
  Propose(MakeRun(3, 3, {10, 11, 12, 13}));
  const Commit commit = Step({10, 20, 0, 0, 0});
  EXPECT_EQ(Fates(commit), "0A 1R 2D 3D ");
  EXPECT_EQ(commit.trace->num_received, 4);
}

TEST_F(TracedSequenceTest, WhatIsPendingKeepsItsNumber) {
  Propose(MakeRun(3, 3, {10, 11}));
  Propose(MakeRun(5, 3, {12, 13}));
  // A pass of fewer rows: its own token is what was proposed.
  EXPECT_EQ(Fates(Step({10, 11})), "0A 1O ");
  EXPECT_EQ(Fates(Step({12, 30, 0})), "2A 3R ");
}

TEST_F(TracedSequenceTest, TellsOfReplacedStaleAndTrimmedTokens) {
  Propose(MakeRun(3, 3, {10, 11, 12}));
  Propose(MakeRun(4, 3, {21, 22}));
  EXPECT_EQ(Fates(Step({10, 30, 0, 0})), "0A 3R 4D 1S 2S ");
  // Behind the fence, of an old source, behind a gap, and beyond the end.
  Propose(MakeRun(5, 4, {40}));
  Propose(MakeRun(5, 5, {41}, 0));
  Propose(MakeRun(7, 5, {42}));
  Propose(MakeRun(5, 5, {50, 51, 52, 53, 54, 55, 56}));
  EXPECT_EQ(Fates(Step({60, 0, 0, 0, 0, 0})),
            "8R 9D 10D 11D 12D 5S 6S 7S 13T 14T ");
  EXPECT_EQ(sequence_.counters().trimmed, 2);
}

TEST_F(TracedSequenceTest, TellsOfTokensThatOverlap) {
  Step({10});
  Step({11});
  Propose(MakeRun(3, 3, {10, 12, 13}));
  Propose(MakeRun(3, 5, {10, 11, 12}));
  EXPECT_EQ(Fates(Step({12, 13})), "5A 0O 1S 2S 3O 4O ");
}

TEST_F(TracedSequenceTest, ANewSourceClearsWhatIsPending) {
  Propose(MakeRun(3, 3, {10, 11}));
  Propose(MakeRun(3, 3, {20}, 2));
  EXPECT_EQ(Fates(Step({20, 21})), "2A 0S 1S ");
}

TEST_F(TracedSequenceTest, TellsOfItsOwnDrafts) {
  Propose(MakeRun(3, 3, {10, 19}));
  sequence_.SetLocalDraft(
      {.tokens = {10, 11, 12}, .survival = {0.5f, 0.25f, 0}});
  const Commit commit = Step({10, 11, 20, 0});
  ASSERT_TRUE(commit.local);
  EXPECT_EQ(Fates(commit), "=10A =11A =12R 0O 1S ");
  EXPECT_EQ(commit.trace->drafts[0].draft_probability, 0.5);
  EXPECT_EQ(commit.trace->drafts[1].draft_probability, 0.5);
  EXPECT_EQ(commit.trace->drafts[2].draft_probability, 0);
}

TEST_F(TracedSequenceTest, AddsUpToTheCounters) {
  Propose(MakeRun(3, 3, {10, 11}));
  Propose(MakeRun(8, 3, {10, 11}));
  const Commit commit = Step({10, 20, 0});
  int64_t stale = 0;
  for (const DraftFate& fate : commit.trace->drafts) {
    stale += fate.outcome == DraftOutcome::kStale ? 1 : 0;
  }
  EXPECT_EQ(stale, commit.counters.stale);
  EXPECT_EQ(stale, 2);
}

TEST_F(TracedSequenceTest, AFloodIsBounded) {
  for (int i = 0; i < 100000; ++i) Propose(MakeRun(3, 0, {10, 11}));
  const Commit commit = Step({10});
  EXPECT_LE(commit.trace->drafts.size(), kMaxDraftFates);
  EXPECT_EQ(commit.counters.stale, 200000);
}

TEST(UntracedSequenceTest, TellsNothing) {
  VerifyParams params = TracedParams();
  params.trace = false;
  VerifySequence sequence = *VerifySequence::Open(params, {100, 64});
  EXPECT_TRUE(sequence.OnProposal(MakeRun(3, 3, {10})).ok());
  sequence.BeginStep(1);
  EXPECT_EQ(Fates(sequence.FinishStep({{10, 11}}, absl::UnixEpoch())), "none");
}

// Probabilities of the four tokens are 1/2, 1/4, 1/8, 1/8, whatever came
// before.
std::vector<float> Rows(size_t count) {
  std::vector<float> rows;
  for (size_t i = 0; i < count; ++i) {
    for (const float p : {0.5f, 0.25f, 0.125f, 0.125f}) {
      rows.push_back(std::log(p) + 3);
    }
  }
  return rows;
}

TracedRows Trace(const SamplingParams& params,
                 AcceptanceRule rule = AcceptanceRule::kCoupled) {
  SequenceContext context;
  context.prompt_length = 1;
  TargetSampler sampler(rule, params, 0, context);
  const std::vector<int32_t> log = {0};
  const std::vector<int32_t> draft = {0, 1, 0};
  const std::vector<int32_t> target = {0, 2, 0, 0};
  const std::vector<float> logits = Rows(4);
  return sampler.Trace(logits, {.log = log, .draft = draft, .q = {}}, target);
}

void ExpectProbability(const TargetProbability& got,
                       double probability,
                       double raw) {
  EXPECT_NEAR(got.probability, probability, 1e-6);
  EXPECT_NEAR(got.logprob, std::log(raw), 1e-6);
}

TEST(TargetTraceTest, ProbabilitiesAreThoseOfThePipelineAndOfTheRawLogits) {
  SamplingParams params;
  params.temperature = 0.5f;
  params.top_k = 3;
  // 1/4, 1/16 and 1/64 of 21/64: at a tie the lowest id is kept.
  for (const auto rule : {AcceptanceRule::kCoupled, AcceptanceRule::kRatio}) {
    const TracedRows traced = Trace(params, rule);
    // What stands behind a wrong draft token was compared with nothing.
    ASSERT_EQ(traced.drafts.size(), 2u);
    ASSERT_EQ(traced.choices.size(), 2u);
    ExpectProbability(traced.drafts[0], 16.0 / 21, 0.5);
    ExpectProbability(traced.choices[0], 16.0 / 21, 0.5);
    ExpectProbability(traced.drafts[1], 4.0 / 21, 0.25);
    ExpectProbability(traced.choices[1], 1.0 / 21, 0.125);
  }
}

TEST(TargetTraceTest, GreedyPutsAllOnTheLikeliest) {
  SamplingParams params;
  params.temperature = 0;
  const TracedRows traced = Trace(params);
  ExpectProbability(traced.drafts[0], 1, 0.5);
  ExpectProbability(traced.drafts[1], 0, 0.25);
  ExpectProbability(traced.choices[1], 0, 0.125);
}

TEST(TargetTraceTest, PenaltiesSeeTheDraftTokensBefore) {
  SamplingParams params;
  params.temperature = 1;
  params.presence_penalty = 1;
  const TracedRows traced = Trace(params);
  ExpectProbability(traced.drafts[0], 0.5, 0.5);
  // Token 0 is in the output now: its weight falls by e.
  const double sum = 0.5 / std::exp(1.0) + 0.5;
  ExpectProbability(traced.drafts[1], 0.25 / sum, 0.25);
}

}  // namespace
}  // namespace specwire::verifier
