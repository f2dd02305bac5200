// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/local_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace specwire::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::IsEmpty;

class FakeClock final : public Clock {
 public:
  absl::Time Now() const override { return now_; }
  void Advance(absl::Duration time) { now_ += time; }

 private:
  absl::Time now_ = absl::UnixEpoch();
};

// Counts on from the path's last token, as sure of each as it is told to be.
// Behind a path of which it has seen less than all but 32 tokens it reads 256
// of them a pass. A pass takes as long as it is told to.
class CountingModel final : public Drafter {
 public:
  explicit CountingModel(FakeClock* clock) : clock_(clock) {}

  const std::string& name() const override { return name_; }
  const std::string& vocabulary_fingerprint() const override { return none_; }
  const std::string& model_digest() const override { return none_; }
  int max_model_len() const override { return max_model_len_; }
  int max_batch() const override { return 64; }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& /*params*/) override {
    ++num_sequences_;
    return std::make_unique<Sequence>();
  }

  DraftPass Propose(absl::Span<DraftTask> tasks) override {
    ++num_passes_;
    if (throws_) throw std::runtime_error("thrown");
    DraftPass pass;
    for (DraftTask& task : tasks) {
      auto* const sequence = static_cast<Sequence*>(task.sequence);
      const size_t behind = task.path.size() - sequence->seen;
      const size_t rows = behind > 32 ? std::min<size_t>(behind, 256) : behind;
      sequence->seen += rows;
      ++pass.num_sequences;
      pass.num_rows += static_cast<int>(rows);
      if (rows < behind) continue;
      DraftRun run;
      run.tokens = {task.path.back() + 1};
      run.survival = {chance_};
      task.result = std::move(run);
    }
    clock_->Advance(pass_time_ + row_time_ * pass.num_rows);
    return pass;
  }

  float chance_ = 0.5f;
  int max_model_len_ = 0;
  bool throws_ = false;
  absl::Duration pass_time_;
  absl::Duration row_time_;
  int num_passes_ = 0;
  int num_sequences_ = 0;

 private:
  struct Sequence final : DraftSequence {
    absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t>,
                                     const DraftLimits&) override {
      return absl::UnimplementedError("");
    }
    size_t seen = 0;
  };

  FakeClock* const clock_;
  const std::string name_ = "counting";
  const std::string none_;
};

// One token a millisecond, a tenth of which a row costs.
constexpr LocalPrices kPrices = {
    .tokens_per_second = 1000, .row_seconds = 1e-4, .num_sequences = 1};

class LocalDrafterTest : public testing::Test {
 protected:
  LocalDrafterTest() {
    auto model = std::make_unique<CountingModel>(&clock_);
    model_ = model.get();
    drafter_ = std::make_unique<LocalDrafter>(
        *SuffixDrafter::Create({}), std::move(model), &clock_);
  }

  std::unique_ptr<LocalSequence> NewSequence(
      AcceptanceRule rule = AcceptanceRule::kCoupled) {
    DraftSequenceParams params;
    params.context.prompt_length = 3;
    params.rule = rule;
    return drafter_->NewSequence(params);
  }
  float Plan(const std::vector<int32_t>& log,
             LocalSequence* sequence,
             const LocalPrices& prices = kPrices) {
    const DraftRun found = drafter_->LookUp(log, {.max_tokens = 8}, sequence);
    return drafter_->Plan({.log = log, .max_tokens = 8, .tokens_left = 100},
                          found,
                          prices,
                          sequence);
  }
  DraftRun Draft(const std::vector<int32_t>& log,
                 LocalSequence* sequence,
                 int max_tokens = 8) {
    LocalTask task = {
        .sequence = sequence, .log = log, .max_tokens = max_tokens};
    drafter_->Draft(absl::MakeSpan(&task, 1), kPrices);
    return task.run;
  }
  // A text of so many tokens, for all of which it may draft.
  void Decode(int num_tokens) {
    const auto sequence = NewSequence();
    std::vector<int32_t> log = {1, 50, 7};
    for (int i = 0; i < num_tokens; ++i) {
      log.push_back(1000 + i * i % 7919);
      Plan(log, sequence.get());
      if (sequence->has_work()) Draft(log, sequence.get());
    }
  }

  FakeClock clock_;
  CountingModel* model_;
  std::unique_ptr<LocalDrafter> drafter_;
};

TEST_F(LocalDrafterTest, IsALookupAloneWithoutAModel) {
  LocalDrafter drafter(*SuffixDrafter::Create({}));
  EXPECT_EQ(drafter.name(), "suffix");
  const auto sequence = drafter.NewSequence({});
  const std::vector<int32_t> log = {1, 2, 3, 9, 1, 2, 3};
  const DraftRun found = drafter.LookUp(log, {.max_tokens = 4}, sequence.get());
  EXPECT_EQ(found.tokens.at(0), 9);
  EXPECT_EQ(drafter.Plan({.log = log, .max_tokens = 4, .tokens_left = 9},
                         found,
                         kPrices,
                         sequence.get()),
            0);
  EXPECT_FALSE(sequence->has_work());
}

TEST_F(LocalDrafterTest, DraftsWhereTheLookupFindsNothing) {
  EXPECT_EQ(drafter_->name(), "hybrid");
  const auto sequence = NewSequence();
  EXPECT_GT(Plan({1, 2, 3}, sequence.get()), 0.4f);
  ASSERT_TRUE(sequence->has_work());
  model_->chance_ = 0.6f;
  const DraftRun run = Draft({1, 2, 3}, sequence.get(), 3);
  EXPECT_THAT(run.tokens, ElementsAre(4, 5, 6));
  EXPECT_THAT(run.survival,
              ElementsAre(FloatNear(0.6f, 1e-4f),
                          FloatNear(0.36f, 1e-4f),
                          FloatNear(0.216f, 1e-4f)));
  EXPECT_FALSE(sequence->has_work());
}

TEST_F(LocalDrafterTest, LeavesAGoodMatchToTheLookup) {
  const auto sequence = NewSequence();
  std::vector<int32_t> log;
  for (int i = 0; i < 60; ++i) log.push_back(10 + i % 6);
  EXPECT_EQ(Plan(log, sequence.get()), 0);
  EXPECT_FALSE(sequence->has_work());
  EXPECT_EQ(model_->num_passes_, 0);
}

TEST_F(LocalDrafterTest, EndsWhereARowDoesNotPay) {
  const auto sequence = NewSequence();
  Plan({1, 2, 3}, sequence.get());
  model_->chance_ = 0.4f;
  // .4, .16; then even a token that is right as often as .45 of all is not
  // worth a tenth.
  EXPECT_THAT(Draft({1, 2, 3}, sequence.get()).tokens, ElementsAre(4, 5));
}

TEST_F(LocalDrafterTest, EndsWhereItsTimeDoesNotPay) {
  // Each pass costs .25 tokens, which is known once it was seen.
  model_->pass_time_ = absl::Microseconds(250);
  model_->chance_ = 0.6f;
  Decode(40);
  const auto sequence = NewSequence();
  Plan({1, 2, 3}, sequence.get());
  ASSERT_TRUE(sequence->has_work());
  // The first was expected to bring more than .5 - .1, a second one .35 - .1.
  EXPECT_THAT(Draft({1, 2, 3}, sequence.get()).tokens, ElementsAre(4));
}

TEST_F(LocalDrafterTest, TheFirstRowHasAPriceOfItsOwn) {
  LocalPrices prices = kPrices;
  prices.first_row_seconds = 2e-4;
  // .45, .2 and less; each less .1.
  EXPECT_GT(Plan({1, 2, 3}, NewSequence().get(), prices), 0);
  prices.first_row_seconds = 6e-4;
  EXPECT_EQ(Plan({1, 2, 3}, NewSequence().get(), prices), 0);
}

TEST_F(LocalDrafterTest, ASlowModelIsAskedNoMoreUntilThatIsForgotten) {
  model_->pass_time_ = absl::Milliseconds(2);
  Decode(40);
  EXPECT_LE(model_->num_passes_, 3);
  const auto sequence = NewSequence();
  const std::vector<int32_t> log = {1, 2, 3};
  EXPECT_EQ(Plan(log, sequence.get()), 0);
  int num_plans = 0;
  while (!sequence->has_work() && num_plans < 10000) {
    Plan(log, sequence.get());
    ++num_plans;
  }
  EXPECT_TRUE(sequence->has_work());
  EXPECT_GT(num_plans, 500);
}

TEST_F(LocalDrafterTest, ABadModelIsAskedSeldom) {
  model_->chance_ = 0.02f;
  Decode(1000);
  const int before = model_->num_passes_;
  Decode(1000);
  EXPECT_LT(model_->num_passes_ - before, 50);
}

TEST_F(LocalDrafterTest, WhereManyDecodeARowIsDearer) {
  const auto sequence = NewSequence();
  LocalPrices prices = kPrices;
  prices.tokens_per_second = 8000;
  prices.num_sequences = 8;
  EXPECT_EQ(Plan({1, 2, 3}, sequence.get(), prices), 0);
  // Nothing is known of prices yet.
  EXPECT_EQ(Plan({1, 2, 3}, sequence.get(), {}), 0);
  EXPECT_FALSE(sequence->has_work());
}

TEST_F(LocalDrafterTest, SequencesShareItsPasses) {
  const auto a = NewSequence();
  const auto b = NewSequence();
  const std::vector<int32_t> log_a = {1, 2, 3};
  const std::vector<int32_t> log_b = {1, 2, 30};
  Plan(log_a, a.get());
  Plan(log_b, b.get());
  LocalTask tasks[] = {{.sequence = a.get(), .log = log_a, .max_tokens = 1},
                       {.sequence = b.get(), .log = log_b, .max_tokens = 2}};
  drafter_->Draft(tasks, kPrices);
  EXPECT_THAT(tasks[0].run.tokens, ElementsAre(4));
  EXPECT_THAT(tasks[1].run.tokens, ElementsAre(31, 32));
  EXPECT_EQ(model_->num_passes_, 2);
}

TEST_F(LocalDrafterTest, ReadsALongTextAChunkAtATime) {
  const auto sequence = NewSequence();
  std::vector<int32_t> log;
  for (int i = 0; i < 600; ++i) log.push_back(1000 + i * i % 7919);
  for (int step = 0; step < 2; ++step) {
    // It promises nothing until it is through.
    EXPECT_EQ(Plan(log, sequence.get()), 0);
    ASSERT_TRUE(sequence->has_work());
    EXPECT_THAT(Draft(log, sequence.get()).tokens, IsEmpty());
    EXPECT_EQ(model_->num_passes_, step + 1);
  }
  EXPECT_EQ(Plan(log, sequence.get()), 0);
  EXPECT_EQ(Draft(log, sequence.get(), 1).tokens.size(), 1u);
  log.push_back(5);
  EXPECT_GT(Plan(log, sequence.get()), 0);
}

TEST_F(LocalDrafterTest, ReadsALongTextOnlyOnceItHasGoneOnForLong) {
  // A row of a text costs a tenth of a token.
  model_->row_time_ = absl::Microseconds(100);
  const auto first = NewSequence();
  std::vector<int32_t> log;
  for (int i = 0; i < 300; ++i) log.push_back(1000 + i * i % 7919);
  Plan(log, first.get());
  Draft(log, first.get());  // Measures that.
  log.resize(200);
  const DraftRun nothing;
  const auto plan = [&](int generated) {
    DraftSequenceParams params;
    params.context.prompt_length = 200 - generated;
    const auto fresh = drafter_->NewSequence(params);
    drafter_->LookUp(log, {.max_tokens = 8}, fresh.get());
    drafter_->Plan({.log = log, .max_tokens = 8, .tokens_left = 1000},
                   nothing,
                   kPrices,
                   fresh.get());
    return fresh->has_work();
  };
  EXPECT_FALSE(plan(1));
  EXPECT_TRUE(plan(90));
}

TEST_F(LocalDrafterTest, UnderTheRatioRuleThereIsNoModel) {
  const auto sequence = NewSequence(AcceptanceRule::kRatio);
  EXPECT_EQ(model_->num_sequences_, 0);
  EXPECT_EQ(Plan({1, 2, 3}, sequence.get()), 0);
  EXPECT_FALSE(sequence->has_work());
}

TEST_F(LocalDrafterTest, StaysInTheModelsContext) {
  model_->max_model_len_ = 5;
  const auto sequence = NewSequence();
  EXPECT_GT(Plan({1, 2, 3, 4}, sequence.get()), 0);
  EXPECT_EQ(Plan({1, 2, 3, 4, 5}, sequence.get()), 0);
  EXPECT_FALSE(sequence->has_work());
}

TEST_F(LocalDrafterTest, AFailureLeavesTheLookup) {
  const auto sequence = NewSequence();
  Plan({1, 2, 3}, sequence.get());
  model_->throws_ = true;
  EXPECT_THAT(Draft({1, 2, 3}, sequence.get()).tokens, IsEmpty());
  model_->throws_ = false;
  EXPECT_EQ(Plan({1, 2, 3}, sequence.get()), 0);
  EXPECT_FALSE(sequence->has_work());
}

}  // namespace
}  // namespace specwire::verifier
