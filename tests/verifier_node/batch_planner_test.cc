// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/batch_planner.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace specwire::verifier {
namespace {

constexpr int kPlenty = 1 << 20;

// 5 ms, and half a millisecond for each row with logits.
PassCost Cost() {
  const StepCost costs[] = {{1, 16, absl::Microseconds(5500)},
                            {16, 16, absl::Microseconds(13000)}};
  return PassCost(costs);
}

Survival Learned(bool good) {
  Survival survival;
  for (int i = 0; i < 60; ++i) survival.OnVerified(8, good ? 8 : 0);
  return survival;
}

PassCandidate Decoding(const Survival* survival, int draft_rows) {
  return {.length = 20,
          .uncomputed = 1,
          .steps = true,
          .draft_rows = draft_rows,
          .survival = survival};
}

PassCandidate Prompt(int tokens, int length = 0) {
  static const Survival* const kFresh = new Survival;
  return {.length = length,
          .uncomputed = tokens,
          .steps = true,
          .survival = kFresh};
}

PassLimits Limits(int64_t free_blocks = kPlenty) {
  PassLimits limits;
  limits.free_blocks = free_blocks;
  return limits;
}

const PlannedRun* Find(const PassPlan& plan, size_t candidate) {
  for (const PlannedRun& run : plan.runs) {
    if (run.candidate == candidate) return &run;
  }
  return nullptr;
}

class BatchPlannerTest : public testing::Test {
 protected:
  const PassCost cost_ = Cost();
  const Survival good_ = Learned(true);
  const Survival bad_ = Learned(false);
};

TEST_F(BatchPlannerTest, NobodyHasNothing) {
  const PassPlan plan = PlanPass({}, cost_, Limits());
  EXPECT_TRUE(plan.runs.empty());
  EXPECT_FALSE(plan.starved);
}

TEST_F(BatchPlannerTest, AllThatDecodeHaveARow) {
  const std::vector<PassCandidate> candidates(40, Decoding(&bad_, 0));
  const PassPlan plan = PlanPass(candidates, cost_, Limits());
  ASSERT_EQ(plan.runs.size(), 40u);
  for (const PlannedRun& run : plan.runs) {
    EXPECT_EQ(run.rows, 1);
    EXPECT_EQ(run.draft_rows, 0);
    EXPECT_TRUE(run.steps);
  }
}

TEST_F(BatchPlannerTest, GoodDraftsGetRowsAndBadOnesNone) {
  const std::vector<PassCandidate> candidates = {Decoding(&good_, 4),
                                                 Decoding(&bad_, 4)};
  const PassPlan plan = PlanPass(candidates, cost_, Limits());
  EXPECT_EQ(Find(plan, 0)->draft_rows, 4);
  EXPECT_EQ(Find(plan, 1)->draft_rows, 0);
  EXPECT_TRUE(IsWorthARow(candidates[0], 1, cost_));
  EXPECT_FALSE(IsWorthARow(candidates[1], 1, cost_));
}

TEST_F(BatchPlannerTest, ALocalDraftGetsRowsByItsOwnChances) {
  // Proposals have been bad, which says nothing of it.
  const std::vector<float> likely = {0.9f, 0.8f, 0.7f, 0.001f, 0.001f};
  const std::vector<float> unlikely(5, 0.001f);
  std::vector<PassCandidate> candidates = {Decoding(&bad_, 5),
                                           Decoding(&good_, 5)};
  candidates[0].draft_survival = likely;
  candidates[1].draft_survival = unlikely;
  const PassPlan plan = PlanPass(candidates, cost_, Limits());
  EXPECT_EQ(Find(plan, 0)->draft_rows, 3);
  EXPECT_EQ(Find(plan, 1)->draft_rows, 0);
  // Whether to wait is about proposals all the same.
  EXPECT_FALSE(IsWorthARow(candidates[0], 1, cost_));
  EXPECT_TRUE(IsWorthARow(candidates[1], 1, cost_));
}

TEST_F(BatchPlannerTest, ProposedAndLocalDraftsCompeteForRows) {
  // With room for one more row the likelier one has it.
  const std::vector<float> likely = {0.999f};
  const std::vector<float> unlikely = {0.5f};
  for (const bool local_is_likely : {false, true}) {
    std::vector<PassCandidate> candidates = {Decoding(&good_, 1),
                                             Decoding(&good_, 1)};
    candidates[1].draft_survival = local_is_likely ? likely : unlikely;
    PassLimits limits = Limits();
    limits.max_rows = 3;
    const PassPlan plan = PlanPass(candidates, cost_, limits);
    EXPECT_EQ(Find(plan, 0)->draft_rows, local_is_likely ? 0 : 1);
    EXPECT_EQ(Find(plan, 1)->draft_rows, local_is_likely ? 1 : 0);
  }
}

TEST_F(BatchPlannerTest, DraftsGiveWayAsThePassFills) {
  // At half a millisecond a row, a batch's rate leaves no room for guesses that
  // a single sequence would make.
  Survival middling;
  for (int i = 0; i < 60; ++i) middling.OnVerified(1, i % 2);
  const PassPlan alone = PlanPass({Decoding(&middling, 4)}, cost_, Limits());
  EXPECT_GE(alone.runs[0].draft_rows, 1);
  const PassPlan full = PlanPass(
      std::vector<PassCandidate>(32, Decoding(&middling, 4)), cost_, Limits());
  for (const PlannedRun& run : full.runs) EXPECT_EQ(run.draft_rows, 0);
  EXPECT_FALSE(IsWorthARow(Decoding(&middling, 0), 32, cost_));
}

// The greedy choice is the best of all for its model: rows of a concave gain at
// a price that is the same for all.
TEST_F(BatchPlannerTest, YieldsAtLeastWhatAnyOtherChoiceWould) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<Survival> survivals(3);
    std::vector<PassCandidate> candidates;
    for (Survival& survival : survivals) {
      for (int i = 0; i < 30; ++i) {
        survival.OnVerified(3, static_cast<int>(random() % 4));
      }
      candidates.push_back(Decoding(&survival, 3));
    }
    const auto rate = [&](const std::vector<int>& drafts) {
      PassShape shape;
      double tokens = 0;
      for (size_t i = 0; i < candidates.size(); ++i) {
        shape.AddRun(1 + drafts[i], candidates[i].length);
        shape.logit_rows += 1 + drafts[i];
        double chance = 1;
        tokens += 1;
        for (int k = 0; k < drafts[i]; ++k) {
          chance *= survivals[i].Acceptance(k);
          tokens += chance;
        }
      }
      return tokens / cost_.Predict(shape);
    };
    const PassPlan plan = PlanPass(candidates, cost_, Limits());
    std::vector<int> chosen(3);
    for (const PlannedRun& run : plan.runs) {
      chosen[run.candidate] = run.draft_rows;
    }
    double best = 0;
    for (int code = 0; code < 64; ++code) {
      best = std::max(best, rate({code % 4, code / 4 % 4, code / 16}));
    }
    EXPECT_GE(rate(chosen), best * 0.995) << round;
  }
}

TEST_F(BatchPlannerTest, LockStepRunsAreWholeOrWait) {
  PassCandidate lock_step = Decoding(&bad_, 200);
  lock_step.lock_step = true;
  const std::vector<PassCandidate> candidates(4, lock_step);
  const PassPlan plan = PlanPass(candidates, cost_, Limits());
  // 201 rows each, 512 in a pass.
  ASSERT_EQ(plan.runs.size(), 2u);
  for (const PlannedRun& run : plan.runs) EXPECT_EQ(run.draft_rows, 200);
  EXPECT_FALSE(plan.starved);
}

TEST_F(BatchPlannerTest, ALonePromptGoesInLargeChunks) {
  PassPlan plan = PlanPass({Prompt(1000)}, cost_, Limits());
  ASSERT_EQ(plan.runs.size(), 1u);
  EXPECT_EQ(plan.runs[0].rows, 256);
  EXPECT_FALSE(plan.runs[0].steps);
  plan = PlanPass({Prompt(100)}, cost_, Limits());
  EXPECT_EQ(plan.runs[0].rows, 100);
  EXPECT_TRUE(plan.runs[0].steps);
  PassCandidate waits = Prompt(100);
  waits.steps = false;
  plan = PlanPass({waits}, cost_, Limits());
  EXPECT_EQ(plan.runs[0].rows, 99);
  EXPECT_FALSE(plan.runs[0].steps);
}

TEST_F(BatchPlannerTest, SeveralPromptsShareAPass) {
  const PassPlan plan = PlanPass(
      {Prompt(100), Prompt(50), Prompt(400), Prompt(9)}, cost_, Limits());
  ASSERT_EQ(plan.runs.size(), 3u);
  EXPECT_EQ(plan.runs[0].rows, 100);
  EXPECT_EQ(plan.runs[1].rows, 50);
  EXPECT_EQ(plan.runs[2].rows, 106);
}

TEST_F(BatchPlannerTest, APromptDoesNotStallThoseThatDecode) {
  PassShape decoding;
  decoding.AddRun(1, 20);
  decoding.logit_rows = 1;
  for (const int context : {0, 100, 400}) {
    const PassPlan plan =
        PlanPass({Decoding(&bad_, 0), Prompt(4000, context)}, cost_, Limits());
    ASSERT_EQ(plan.runs.size(), 2u);
    PassShape shape = decoding;
    shape.AddRun(plan.runs[1].rows, context);
    EXPECT_LE(cost_.Predict(shape), 2 * cost_.Predict(decoding));
    shape.AddRows(1, context + plan.runs[1].rows);
    EXPECT_GT(cost_.Predict(shape), 2 * cost_.Predict(decoding));
  }
  // Context makes rows dear, but some there are.
  const PassPlan plan = PlanPass(
      {Decoding(&bad_, 0), Prompt(4000, 200000), Prompt(50)}, cost_, Limits());
  ASSERT_EQ(plan.runs.size(), 2u);
  EXPECT_EQ(plan.runs[1].rows, 2);
}

TEST_F(BatchPlannerTest, DraftsWaitWhileAPromptDoes) {
  const PassCandidate decoding = Decoding(&good_, 8);
  PassPlan plan = PlanPass({decoding, Prompt(100)}, cost_, Limits());
  ASSERT_EQ(plan.runs.size(), 2u);
  EXPECT_EQ(plan.runs[0].draft_rows, 0);
  plan = PlanPass({decoding}, cost_, Limits());
  EXPECT_GT(plan.runs[0].draft_rows, 0);
}

TEST_F(BatchPlannerTest, TheEndOfAPromptInLockStepTakesItsDraftsAlong) {
  PassCandidate prompt = Prompt(10);
  prompt.draft_rows = 6;
  prompt.survival = &good_;
  PassPlan plan = PlanPass({prompt}, cost_, Limits());
  EXPECT_EQ(plan.runs[0].rows, 10);
  EXPECT_EQ(plan.runs[0].draft_rows, 0);
  prompt.lock_step = true;
  prompt.survival = &bad_;
  plan = PlanPass({prompt}, cost_, Limits());
  EXPECT_EQ(plan.runs[0].draft_rows, 6);
  // No room for all of them: the last token waits as well.
  plan = PlanPass({prompt}, cost_, Limits(/*free_blocks=*/0));
  EXPECT_TRUE(plan.starved);
  prompt.uncomputed = 14;
  plan = PlanPass({prompt}, cost_, Limits(/*free_blocks=*/1));
  EXPECT_EQ(plan.runs[0].rows, 13);
  EXPECT_EQ(plan.runs[0].draft_rows, 0);
  EXPECT_FALSE(plan.runs[0].steps);
}

TEST_F(BatchPlannerTest, WithFewBlocksDraftsGiveWayFirst) {
  // Each needs a block of its own for its second row.
  PassCandidate candidate = Decoding(&good_, 4);
  candidate.length = 31;
  const std::vector<PassCandidate> candidates(3, candidate);
  const PassPlan plan = PlanPass(candidates, cost_, Limits(1));
  ASSERT_EQ(plan.runs.size(), 3u);
  EXPECT_FALSE(plan.starved);
  int drafts = 0;
  for (const PlannedRun& run : plan.runs) drafts += run.draft_rows;
  EXPECT_EQ(drafts, 4);
}

TEST_F(BatchPlannerTest, ThenChunksBecomeSmaller) {
  PassCandidate decoding = Decoding(&good_, 0);
  decoding.length = 32;
  const PassPlan plan = PlanPass({decoding, Prompt(100, 3)}, cost_, Limits(1));
  ASSERT_EQ(plan.runs.size(), 2u);
  EXPECT_EQ(plan.runs[1].rows, 13);
  EXPECT_FALSE(plan.starved);
}

TEST_F(BatchPlannerTest, ThenSomebodyMustMakeRoom) {
  PassCandidate decoding = Decoding(&good_, 0);
  decoding.length = 32;
  EXPECT_TRUE(PlanPass({decoding, decoding}, cost_, Limits(1)).starved);
  // A prompt waits, unless it must advance or nothing else does.
  PassCandidate prompt = Prompt(100, 16);
  EXPECT_FALSE(PlanPass({decoding, prompt}, cost_, Limits(1)).starved);
  EXPECT_TRUE(PlanPass({prompt}, cost_, Limits(0)).starved);
  prompt.must_advance = true;
  EXPECT_TRUE(PlanPass({decoding, prompt}, cost_, Limits(1)).starved);
}

TEST_F(BatchPlannerTest, ALastResortCutsALockStepRun) {
  PassCandidate lock_step = Decoding(&bad_, 10);
  lock_step.lock_step = true;
  lock_step.length = 29;
  PassLimits limits = Limits(0);
  EXPECT_TRUE(PlanPass({lock_step}, cost_, limits).starved);
  limits.last_resort = true;
  const PassPlan plan = PlanPass({lock_step}, cost_, limits);
  ASSERT_EQ(plan.runs.size(), 1u);
  EXPECT_EQ(plan.runs[0].draft_rows, 2);
  EXPECT_FALSE(plan.starved);
  lock_step.length = 32;
  EXPECT_TRUE(PlanPass({lock_step}, cost_, limits).starved);
}

TEST_F(BatchPlannerTest, MoreThanFitRotateWithTheOrder) {
  const std::vector<PassCandidate> candidates(600, Decoding(&bad_, 0));
  const PassPlan plan = PlanPass(candidates, cost_, Limits());
  ASSERT_EQ(plan.runs.size(), 512u);
  EXPECT_EQ(plan.runs.back().candidate, 511u);
  EXPECT_FALSE(plan.starved);
}

// Whatever comes, limits hold.
TEST_F(BatchPlannerTest, PromptsAdvanceHoweverManyDecode) {
  std::vector<PassCandidate> candidates(2000, Decoding(&bad_, 0));
  candidates.push_back(Prompt(100));
  const PassPlan plan = PlanPass(candidates, cost_, Limits());
  ASSERT_NE(Find(plan, 2000), nullptr);
  EXPECT_GE(Find(plan, 2000)->rows, 16);
}

TEST_F(BatchPlannerTest, TheMorePromptsWaitTheMoreTheyGet) {
  int before = 0;
  for (const int prompts : {1, 3, 5}) {
    std::vector<PassCandidate> candidates(4, Decoding(&bad_, 0));
    candidates.resize(4 + static_cast<size_t>(prompts), Prompt(1000));
    const PassPlan plan = PlanPass(candidates, cost_, Limits());
    int rows = 0;
    for (const PlannedRun& run : plan.runs) rows += run.rows;
    EXPECT_GT(rows, before + 5);
    before = rows;
  }
}

TEST_F(BatchPlannerTest, RandomPlansKeepTheirLimits) {
  std::mt19937 random(11);
  const auto below = [&](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<PassCandidate> candidates;
    for (int i = below(80); i > 0; --i) {
      PassCandidate candidate;
      candidate.length = below(500);
      candidate.uncomputed = below(3) > 0 ? 1 : 1 + below(700);
      candidate.steps = candidate.uncomputed == 1 || below(4) > 0;
      candidate.draft_rows = below(3) == 0 ? below(257) : below(8);
      candidate.lock_step = below(4) == 0;
      candidate.all_logits = below(8) == 0;
      candidate.must_advance = i == 1;
      candidate.survival = below(2) == 0 ? &good_ : &bad_;
      candidates.push_back(candidate);
    }
    PassLimits limits = Limits(below(2) == 0 ? below(40) : kPlenty);
    limits.last_resort = below(5) == 0;
    const PassPlan plan = PlanPass(candidates, cost_, limits);
    int rows = 0;
    int64_t blocks = 0;
    std::vector<bool> seen(candidates.size());
    for (const PlannedRun& run : plan.runs) {
      const PassCandidate& candidate = candidates[run.candidate];
      EXPECT_FALSE(seen[run.candidate]);
      seen[run.candidate] = true;
      EXPECT_GE(run.rows, 1);
      EXPECT_LE(run.rows, candidate.uncomputed);
      EXPECT_LE(run.draft_rows, candidate.draft_rows);
      EXPECT_EQ(run.steps, candidate.steps && run.rows == candidate.uncomputed);
      if (!run.steps) {
        EXPECT_EQ(run.draft_rows, 0);
        // The last token is decided about, or left.
        EXPECT_LT(run.rows, candidate.uncomputed);
      } else if (candidate.lock_step && !limits.last_resort) {
        EXPECT_EQ(run.draft_rows, candidate.draft_rows);
      }
      rows += run.rows + run.draft_rows;
      const int end = candidate.length + run.rows + run.draft_rows;
      blocks += (end + 15) / 16 - (candidate.length + 15) / 16;
    }
    EXPECT_LE(rows, Engine::kMaxRows);
    EXPECT_LE(blocks, limits.free_blocks);
    if (plan.runs.empty() && !candidates.empty()) {
      EXPECT_TRUE(plan.starved);
    }
  }
}

}  // namespace
}  // namespace specwire::verifier
