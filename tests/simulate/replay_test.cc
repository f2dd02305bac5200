// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace specwire::replay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Counts on from the last token, and is wrong about every multiple of 5.
class CountingDrafter final : public Drafter {
 public:
  explicit CountingDrafter(int calls_per_run = 1)
      : calls_per_run_(calls_per_run) {}

  const std::string& name() const override { return name_; }
  const std::string& vocabulary_fingerprint() const override { return none_; }
  const std::string& model_digest() const override { return none_; }
  int max_model_len() const override { return 40; }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& params) override {
    seeds.push_back(params.sampling.seed);
    prompt_lengths.push_back(params.context.prompt_length);
    return std::make_unique<Sequence>();
  }
  using Drafter::Propose;
  DraftPass Propose(absl::Span<DraftTask> tasks) override {
    if (++num_calls_ % calls_per_run_ == 0) Drafter::Propose(tasks);
    return {.num_sequences = 1, .num_rows = calls_per_run_ > 1 ? 1 : 0};
  }

  std::vector<int64_t> seeds;
  std::vector<int> prompt_lengths;

 private:
  class Sequence final : public DraftSequence {
   public:
    absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                     const DraftLimits& limits) override {
      DraftRun run;
      for (int i = 1; i <= limits.max_tokens; ++i) {
        const int32_t token = path.back() + i;
        run.tokens.push_back(token % 5 == 0 ? 0 : token);
        run.survival.push_back(0.5f);
      }
      return run;
    }
  };

  const std::string name_ = "counting";
  const std::string none_;
  const int calls_per_run_;
  int num_calls_ = 0;
};

Text CountingText() {
  Text text;
  text.category = "qa";
  text.prompt = {1, 2, 3};
  text.completion = {4, 5, 6, 7, 8, 9, 10, 11};
  text.sampling.seed = 42;
  return text;
}

TEST(ReplayTest, ComparesTheRunWithTheText) {
  CountingDrafter drafter;
  const Text text = CountingText();
  Replay replay(&drafter, &text);
  EXPECT_THAT(drafter.seeds, ElementsAre(42));
  EXPECT_THAT(drafter.prompt_lengths, ElementsAre(3));
  const absl::StatusOr<Answer> first = replay.At(0, 4);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(first->run.tokens, ElementsAre(4, 0, 6, 7));
  EXPECT_EQ(first->right, 1);
  EXPECT_FALSE(first->model);
  EXPECT_EQ(replay.At(2, 4)->right, 4);
  EXPECT_EQ(replay.At(2, 3)->right, 3);
  // No further than the text goes.
  EXPECT_EQ(replay.At(7, 4)->right, 1);
}

TEST(ReplayTest, PutsATaskAgainUntilItIsDone) {
  CountingDrafter drafter(/*calls_per_run=*/3);
  const Text text = CountingText();
  Replay replay(&drafter, &text);
  const absl::StatusOr<Answer> answer = replay.At(2, 4);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->right, 4);
  EXPECT_TRUE(answer->model);
}

TEST(ReplayTest, RecordsEveryPosition) {
  CountingDrafter drafter;
  const absl::StatusOr<simulate::Trace> trace =
      Record(&drafter, CountingText());
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->drafter, "counting");
  EXPECT_EQ(trace->prompt_tokens, 3);
  std::vector<int> right;
  for (const simulate::TracePosition& position : trace->positions) {
    EXPECT_EQ(position.proposed, simulate::kMaxTracedRun);
    EXPECT_EQ(position.survival.size(), 16u);
    right.push_back(position.right);
  }
  EXPECT_THAT(right, ElementsAre(1, 0, 4, 3, 2, 1, 0, 1));
  EXPECT_TRUE(simulate::ParseTrace(simulate::FormatTrace(*trace)).ok());
}

TEST(ReplayTest, BeyondTheDraftersContextThereIsNothing) {
  CountingDrafter drafter;
  Text text = CountingText();
  text.prompt.assign(40, 1);
  EXPECT_TRUE(Replay(&drafter, &text).At(0, 4)->run.tokens.empty());
}

std::vector<Text> Read(const std::string& lines) {
  std::istringstream input(lines);
  absl::StatusOr<std::vector<Text>> texts = ReadTexts(&input, "file");
  EXPECT_TRUE(texts.ok()) << texts.status();
  return texts.ok() ? *std::move(texts) : std::vector<Text>();
}

TEST(ReadTextsTest, TakesWhatABenchWrites) {
  const std::vector<Text> texts = Read(
      R"({"category":"writing","prompt_token_ids":[1],"token_ids":[2,3],)"
      R"("mode":"plain","status":"OK","seed":5,"temperature":0.5,)"
      R"("finish_reason":"stop","question_id":81})"
      "\n"
      // The same question speculatively, the same again, and a failed one.
      R"({"category":"writing","prompt_token_ids":[1],"token_ids":[2,3],)"
      R"("mode":"speculative","status":"OK","seed":5})"
      "\n"
      R"({"category":"writing","prompt_token_ids":[1],"token_ids":[2,3],)"
      R"("seed":5})"
      "\n"
      R"({"category":"qa","status":"UNAVAILABLE","token_ids":[]})"
      "\n"
      R"({"category":"rag","prompt_token_ids":[1],"token_ids":[2],"seed":6})");
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0].category, "chat");
  EXPECT_EQ(texts[0].question_id, 81);
  EXPECT_EQ(texts[0].sampling.seed, 5);
  EXPECT_EQ(texts[0].sampling.temperature, 0.5f);
  EXPECT_TRUE(texts[0].stopped);
  EXPECT_EQ(texts[1].category, "rag");
  EXPECT_EQ(texts[1].sampling.temperature, 0);
  EXPECT_FALSE(texts[1].stopped);
}

TEST(ReadTextsTest, NamesTheLineAndTheField) {
  const auto message = [](const std::string& lines) {
    std::istringstream input(lines);
    return std::string(ReadTexts(&input, "file").status().message());
  };
  EXPECT_THAT(message("\n7"), HasSubstr("file:2"));
  EXPECT_THAT(message("{}"), HasSubstr("category"));
  EXPECT_THAT(message(R"({"category":"qa","token_ids":[1]})"),
              HasSubstr("prompt_token_ids"));
  EXPECT_THAT(
      message(R"({"category":"qa","prompt_token_ids":[1],"token_ids":[1,-2]})"),
      HasSubstr("token_ids[1]"));
  EXPECT_THAT(
      message(
          R"({"category":"qa","prompt_token_ids":[1],"token_ids":[1],"seed":"x"})"),
      HasSubstr("seed"));
  EXPECT_THAT(message(""), HasSubstr("no texts"));
}

}  // namespace
}  // namespace specwire::replay
