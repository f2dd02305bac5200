// SPDX-License-Identifier: Apache-2.0
#include "draft_node/hybrid_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace specwire::draft {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<int32_t>;

// A model that takes a call for each token and says what it is told to: from
// `first` on, one after the other.
class FakeModel final : public Drafter {
 public:
  static constexpr int32_t kFirst = 1000;

  const std::string& name() const override { return name_; }
  const std::string& vocabulary_fingerprint() const override { return print_; }
  const std::string& model_digest() const override { return digest_; }
  int max_model_len() const override { return max_model_len_; }
  int max_batch() const override { return 5; }
  int64_t kv_blocks_total() const override { return 7; }
  int64_t kv_blocks_used() const override { return 6; }
  int64_t kv_blocks_cached() const override { return 4; }

  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& /*params*/) override {
    return std::make_unique<Sequence>();
  }

  DraftPass Propose(absl::Span<DraftTask> tasks) override {
    batches.push_back(static_cast<int>(tasks.size()));
    for (DraftTask& task : tasks) {
      auto* const sequence = static_cast<Sequence*>(task.sequence);
      const Tokens path(task.path.begin(), task.path.end());
      if (path != sequence->path) sequence->run.clear();
      sequence->path = path;
      asked.push_back(task.limits.max_tokens);
      if (!failure.ok()) {
        task.result = failure;
        continue;
      }
      if (silent) {
        task.result = DraftRun();
        continue;
      }
      sequence->run.push_back(kFirst +
                              static_cast<int32_t>(sequence->run.size()));
      if (static_cast<int>(sequence->run.size()) < task.limits.max_tokens) {
        continue;
      }
      DraftRun run;
      run.tokens = std::exchange(sequence->run, {});
      task.result = std::move(run);
    }
    return {.num_sequences = static_cast<int>(tasks.size()), .num_rows = 3};
  }

  bool silent = false;
  absl::Status failure;
  int max_model_len_ = 0;
  // Tasks of each call; most tokens of each task.
  std::vector<int> batches;
  std::vector<int> asked;

 private:
  struct Sequence final : public DraftSequence {
    absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> /*path*/,
                                     const DraftLimits& /*limits*/) override {
      return absl::UnimplementedError("not used");
    }
    Tokens path;
    Tokens run;
  };

  const std::string name_ = "model";
  const std::string print_ = "print";
  const std::string digest_ = "digest";
};

class HybridDrafterTest : public ::testing::Test {
 protected:
  HybridDrafterTest() {
    auto lookup = SuffixDrafter::Create({});
    EXPECT_TRUE(lookup.ok()) << lookup.status();
    auto model = std::make_unique<FakeModel>();
    model_ = model.get();
    drafter_ =
        std::make_unique<HybridDrafter>(*std::move(lookup), std::move(model));
  }

  std::unique_ptr<DraftSequence> NewSequence() {
    DraftSequenceParams params;
    params.sampling.temperature = 0;
    params.context.prompt_length = 1;
    return drafter_->NewSequence(params);
  }

  static Tokens Propose(DraftSequence* sequence,
                        const Tokens& path,
                        int max_tokens = 4) {
    auto run = sequence->Propose(path, {max_tokens});
    EXPECT_TRUE(run.ok()) << run.status();
    return run->tokens;
  }

  // A path that a lookup continues with 2, 3, 4, 5.
  static Tokens Familiar() { return {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1}; }
  // One that says nothing.
  static Tokens Strange() { return {1, 2, 3, 4, 5, 6, 7, 8, 9}; }

  FakeModel* model_ = nullptr;
  std::unique_ptr<HybridDrafter> drafter_;
};

TEST_F(HybridDrafterTest, TakesTheLookupWhereItExpectsMore) {
  const auto sequence = NewSequence();
  EXPECT_THAT(Propose(sequence.get(), Familiar()), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(model_->batches, IsEmpty());
}

TEST_F(HybridDrafterTest, AsksTheModelWhereLookupFindsNothing) {
  const auto sequence = NewSequence();
  EXPECT_THAT(Propose(sequence.get(), Strange()),
              ElementsAre(1000, 1001, 1002, 1003));
  // A call for each token, and no lookup in between.
  EXPECT_THAT(model_->batches, ElementsAre(1, 1, 1, 1));
}

TEST_F(HybridDrafterTest, IsTheModelToOthers) {
  EXPECT_EQ(drafter_->name(), "hybrid");
  EXPECT_EQ(drafter_->vocabulary_fingerprint(), "print");
  EXPECT_EQ(drafter_->model_digest(), "digest");
  EXPECT_EQ(drafter_->max_model_len(), 0);
  EXPECT_EQ(drafter_->max_batch(), 5);
  EXPECT_EQ(drafter_->kv_blocks_total(), 7);
  EXPECT_EQ(drafter_->kv_blocks_used(), 6);
  EXPECT_EQ(drafter_->kv_blocks_cached(), 4);
}

TEST_F(HybridDrafterTest, LookupsDoNotWaitForThePass) {
  const auto first = NewSequence();
  const auto second = NewSequence();
  const auto third = NewSequence();
  const Tokens familiar = Familiar();
  const Tokens strange = Strange();
  std::vector<DraftTask> tasks = {
      {.sequence = first.get(), .path = strange, .limits = {1}},
      {.sequence = second.get(), .path = familiar, .limits = {1}},
      {.sequence = third.get(), .path = strange, .limits = {2}}};
  EXPECT_EQ(drafter_->Propose(absl::MakeSpan(tasks)).num_sequences, 0);
  EXPECT_FALSE(tasks[0].result.has_value());
  EXPECT_TRUE(tasks[1].result.has_value());
  EXPECT_FALSE(tasks[2].result.has_value());
  EXPECT_THAT(model_->batches, IsEmpty());

  tasks.erase(tasks.begin() + 1);
  const DraftPass pass = drafter_->Propose(absl::MakeSpan(tasks));
  EXPECT_EQ(pass.num_sequences, 2);
  EXPECT_EQ(pass.num_rows, 3);
  ASSERT_TRUE(tasks[0].result.has_value());
  EXPECT_THAT((*tasks[0].result)->tokens, ElementsAre(1000));
  EXPECT_FALSE(tasks[1].result.has_value());
  EXPECT_THAT(model_->batches, ElementsAre(2));
}

TEST_F(HybridDrafterTest, ChoosesAnewWhenThePathChanges) {
  const auto sequence = NewSequence();
  Tokens path = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 9};
  DraftTask task = {.sequence = sequence.get(), .path = path, .limits = {4}};
  for (int i = 0; i < 3; ++i) {
    drafter_->Propose(absl::MakeSpan(&task, 1));
    ASSERT_FALSE(task.result.has_value());
  }
  // A commit that leads to what was there before.
  path.insert(path.end(), {1, 2, 3, 4});
  task.path = path;
  drafter_->Propose(absl::MakeSpan(&task, 1));
  ASSERT_TRUE(task.result.has_value());
  EXPECT_THAT((*task.result)->tokens, ElementsAre(5, 6, 9, 1));
}

TEST_F(HybridDrafterTest, WhereTheModelSaysNothingLookupDoes) {
  const auto sequence = NewSequence();
  model_->silent = true;
  // 2 followed 1 once, long ago and among others: little, but not nothing.
  const Tokens path = {1, 2, 1, 3, 1, 4, 1, 5, 1};
  EXPECT_THAT(Propose(sequence.get(), path, 1), ElementsAre(5));
  EXPECT_THAT(model_->batches, ElementsAre(1));
}

TEST_F(HybridDrafterTest, AModelThatEarnsNothingIsAskedLess) {
  const auto sequence = NewSequence();
  Tokens path = {1};
  // Whatever it says is wrong.
  for (int32_t i = 0; i < 60; ++i) {
    Propose(sequence.get(), path);
    path.push_back(10 + i);
  }
  const size_t num_batches = model_->batches.size();
  EXPECT_GT(num_batches, 0u);
  // A lookup that expects little is better now.
  path.insert(path.end(), {1, 2, 1, 3, 1});
  EXPECT_THAT(Propose(sequence.get(), path, 1), ElementsAre(3));
  EXPECT_EQ(model_->batches.size(), num_batches);
}

TEST_F(HybridDrafterTest, AModelThatIsRightIsAskedMore) {
  const auto sequence = NewSequence();
  Tokens path = {1};
  // Four of four are right, and one more comes each time.
  for (int32_t i = 0; i < 60; ++i) {
    const Tokens tokens = Propose(sequence.get(), path);
    path.insert(path.end(), tokens.begin(), tokens.end());
    path.push_back(10 + i);
  }
  // What lookup finds once is no match for it.
  path.insert(path.end(), {1, 2, 3, 4, 5, 1, 2});
  EXPECT_THAT(Propose(sequence.get(), path),
              ElementsAre(1000, 1001, 1002, 1003));
}

TEST_F(HybridDrafterTest, BeyondTheModelsContextLookupGoesOn) {
  model_->max_model_len_ = 11;
  const auto sequence = NewSequence();
  const Tokens path = Strange();
  EXPECT_THAT(Propose(sequence.get(), path, 4), ElementsAre(1000, 1001));
  EXPECT_THAT(model_->asked, Each(2));
  Tokens longer = path;
  longer.insert(longer.end(), {1, 2, 3});
  const size_t num_batches = model_->batches.size();
  EXPECT_EQ(Propose(sequence.get(), longer, 2), (Tokens{4, 5}));
  EXPECT_EQ(model_->batches.size(), num_batches);
}

TEST_F(HybridDrafterTest, WhatFailsInTheModelFailsInItsSequence) {
  const auto sequence = NewSequence();
  model_->failure = absl::InternalError("broken");
  EXPECT_EQ(sequence->Propose(Strange(), {4}).status().code(),
            absl::StatusCode::kInternal);
}

// Tokens of the model that nobody has verified are no past output.
TEST_F(HybridDrafterTest, WhatTheModelProposedIsNotCounted) {
  const auto sequence = NewSequence();
  Tokens path = Strange();
  for (int i = 0; i < 3; ++i) {
    const Tokens tokens = Propose(sequence.get(), path, 2);
    EXPECT_EQ(tokens, (Tokens{1000, 1001}));
    path.insert(path.end(), tokens.begin(), tokens.end());
  }
  // Had 1000, 1001 been counted, lookup would know how it goes on.
  EXPECT_THAT(model_->batches, ElementsAre(1, 1, 1, 1, 1, 1));
}

TEST(RunExpectationTest, BeginsWithAModestGuess) {
  const RunExpectation expectation;
  EXPECT_DOUBLE_EQ(expectation.Tokens(1), .4);
  EXPECT_DOUBLE_EQ(expectation.Tokens(3), .4 + .16 + .064);
  EXPECT_EQ(expectation.Tokens(0), 0);
}

TEST(RunExpectationTest, ConvergesToWhatItSees) {
  RunExpectation expectation;
  for (int i = 0; i < 200; ++i) {
    expectation.OnAnswer(i % 2 == 0);
    expectation.OnJudged(3, true);
  }
  // Every other time a run, whose tokens are right three times of four.
  EXPECT_NEAR(expectation.Tokens(1), .5 * .75, .02);
  for (int i = 0; i < 200; ++i) {
    expectation.OnAnswer(false);
    expectation.OnJudged(0, true);
  }
  EXPECT_NEAR(expectation.Tokens(4), 0, .01);
}

}  // namespace
}  // namespace specwire::draft
