// SPDX-License-Identifier: Apache-2.0
#include "coordinator/reply.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/metrics/metrics.h"
#include "coordinator/model_catalog.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_nodes.h"

namespace specwire::coordinator {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> Tokens(const std::string& text) {
  return {text.begin(), text.end()};
}

const absl::Time kArrival = absl::FromUnixSeconds(1000);

absl::Time At(int ms) { return kArrival + absl::Milliseconds(ms); }

class ReplyTest : public ::testing::Test {
 protected:
  ReplyTest() : metrics_(&registry_, "fake", &pairs_left_) {
    const FakeModel fake;
    ModelCatalog catalog;
    EXPECT_TRUE(
        catalog.Add({fake.Info(), fake.Fingerprint(), 64}, fake.Tokenizer())
            .ok());
    request_.model = catalog.Find(fake.Info().model_digest);
    request_.params.prompt = {1, 2, 3};
  }
  v1::GenerateDelta Delta(const std::vector<int32_t>& tokens,
                          int num_accepted = 0,
                          int ms = 0) {
    const EmitTokens emit = {reply_->num_tokens(), tokens, num_accepted};
    return reply_->Delta(emit, At(ms)).delta();
  }
  v1::GenerateFinished Finish(
      FinishReason reason,
      std::optional<int32_t> stop_token_id = std::nullopt) {
    const FinishRequest finish = {absl::OkStatus(), reason, stop_token_id};
    return reply_->Finished(finish, SpeculationFigures(), "").finished();
  }
  void Begin() { reply_.emplace(&request_, &metrics_, kArrival); }

  MetricsRegistry registry_;
  std::atomic<int> pairs_left_ = 1;
  ModelMetrics metrics_;
  CheckedRequest request_;
  std::optional<Reply> reply_;
};

TEST_F(ReplyTest, HoldsBytesBackUntilTheirCharacterIsComplete) {
  Begin();
  // "a", then the three bytes of the euro sign in two deltas.
  v1::GenerateDelta delta = Delta({'a', 0xe2, 0x82});
  EXPECT_EQ(delta.text(), "a");
  EXPECT_THAT(delta.text_ends(), ElementsAre(1, 1, 1));
  delta = Delta({0xac, 'b'});
  EXPECT_EQ(delta.text(),
            "\xe2\x82\xac"
            "b");
  EXPECT_THAT(delta.text_ends(), ElementsAre(3, 4));
  EXPECT_EQ(delta.first_index(), 3);
  EXPECT_EQ(Finish(FinishReason::kLength).text(), "");
}

TEST_F(ReplyTest, TellsABrokenCharacterAtTheEnd) {
  Begin();
  EXPECT_EQ(Delta({'a', 0xe2}).text(), "a");
  EXPECT_EQ(Finish(FinishReason::kLength).text(), "\xef\xbf\xbd");
}

TEST_F(ReplyTest, TextGoesOnWhereThatOfResumedTokensEnds) {
  // The euro sign's first byte is held back from before.
  request_.params.resumed = {'a', 0xe2};
  Begin();
  EXPECT_EQ(reply_->num_tokens(), 2);
  const v1::GenerateDelta delta = Delta({0x82, 0xac, 'b'}, 0, 10);
  EXPECT_EQ(delta.first_index(), 2);
  EXPECT_EQ(delta.text(),
            "\xe2\x82\xac"
            "b");
  EXPECT_THAT(delta.text_ends(), ElementsAre(0, 3, 4));
  const v1::GenerateFinished finished = Finish(FinishReason::kLength);
  EXPECT_EQ(finished.usage().completion_tokens(), 5);
  // Of the new tokens.
  EXPECT_EQ(finished.timings().time_to_first_token_ms(), 10);
  EXPECT_EQ(metrics_.generation_tokens->value(), 3);
}

TEST_F(ReplyTest, EndsWithWhatResumedTokensHeldBack) {
  request_.params.resumed = {'a', 0xe2};
  Begin();
  const v1::GenerateFinished finished = Finish(FinishReason::kLength);
  EXPECT_EQ(finished.text(), "\xef\xbf\xbd");
  EXPECT_EQ(finished.usage().completion_tokens(), 2);
  EXPECT_EQ(finished.timings().time_to_first_token_ms(), 0);
}

TEST_F(ReplyTest, TellsWhereTokensCameFrom) {
  Begin();
  EXPECT_THAT(Delta({'a', 'b', 'c'}, 2).origins(),
              ElementsAre(v1::TOKEN_ORIGIN_DRAFT,
                          v1::TOKEN_ORIGIN_DRAFT,
                          v1::TOKEN_ORIGIN_TARGET));
}

TEST_F(ReplyTest, TellsEosFromStopToken) {
  Begin();
  Delta({FakeModel::kEos});
  EXPECT_EQ(Finish(FinishReason::kStop, FakeModel::kEos).eos_token_id(),
            FakeModel::kEos);
  EXPECT_EQ(Finish(FinishReason::kStop, 'a').stop_token_id(), 'a');
  EXPECT_EQ(Finish(FinishReason::kLength).matched_case(),
            v1::GenerateFinished::MATCHED_NOT_SET);
  // Where EOS is a token like any other, it stops as a stop token does.
  request_.stop.ignore_eos = true;
  EXPECT_EQ(Finish(FinishReason::kStop, FakeModel::kEos).stop_token_id(),
            FakeModel::kEos);
}

// Bug report 21, the bytes of a split character included.
TEST_F(ReplyTest, AStopTextIsMetAcrossTokensAndWithinCharacters) {
  // "a\u20acb", told byte by byte.
  request_.text.stop_texts =
      std::make_shared<const StopTexts>(std::vector<std::string>{"\xe2\x82\xac"
                                                                 "b"});
  Begin();
  const std::vector<int32_t> tokens = {'a', 0xe2, 0x82, 0xac};
  for (const int32_t token : tokens) EXPECT_FALSE(reply_->Judge(token));
  v1::GenerateDelta delta = Delta(tokens);
  EXPECT_EQ(delta.text(), "a");
  EXPECT_TRUE(reply_->Judge('b'));
  delta = Delta({'b'});
  EXPECT_EQ(delta.text(), "");
  EXPECT_THAT(delta.text_ends(), ElementsAre(0));
  FinishRequest finish;
  finish.reason = FinishReason::kStop;
  finish.stop_text = true;
  const v1::GenerateFinished finished =
      reply_->Finished(finish, SpeculationFigures(), "").finished();
  EXPECT_EQ(finished.stop_text(),
            "\xe2\x82\xac"
            "b");
  EXPECT_EQ(finished.text(), "");
  EXPECT_EQ(finished.usage().completion_tokens(), 5);
}

TEST_F(ReplyTest, WhatMayBeginAStopTextIsHeldBack) {
  request_.text.stop_texts =
      std::make_shared<const StopTexts>(std::vector<std::string>{"END"});
  Begin();
  for (const int32_t token : Tokens("xEN")) EXPECT_FALSE(reply_->Judge(token));
  EXPECT_EQ(Delta(Tokens("xEN")).text(), "x");
  EXPECT_FALSE(reply_->Judge('E'));
  const v1::GenerateDelta delta = Delta({'E'});
  EXPECT_EQ(delta.text(), "EN");
  EXPECT_THAT(delta.text_ends(), ElementsAre(2));
  // Then EOS: nothing can follow. The broken character stands behind it.
  EXPECT_FALSE(reply_->Judge(0xe2));
  EXPECT_EQ(Delta({0xe2, FakeModel::kEos}).text(), "");
  EXPECT_EQ(Finish(FinishReason::kStop, FakeModel::kEos).text(),
            "E\xef\xbf\xbd");
}

TEST_F(ReplyTest, TellsItsChoice) {
  reply_.emplace(&request_, &metrics_, kArrival, 3);
  EXPECT_EQ(Delta({'a'}).choice(), 3);
  EXPECT_EQ(Finish(FinishReason::kLength).choice(), 3);
}

TEST_F(ReplyTest, TimesAreFromArrivalAndBetweenTokens) {
  Begin();
  reply_->OnFirstStep(At(20), 7);
  reply_->OnFirstStep(At(90), 9);
  Delta({'a', 'b'}, 0, 30);
  Delta({'c', 'd', 'e'}, 0, 70);
  const v1::GenerateFinished finished = Finish(FinishReason::kLength);
  EXPECT_EQ(finished.timings().queue_time_ms(), 20);
  EXPECT_EQ(finished.timings().time_to_first_token_ms(), 30);
  EXPECT_EQ(finished.timings().generation_time_ms(), 40);
  EXPECT_EQ(finished.timings().tokens_per_second(), 100);
  EXPECT_EQ(finished.timings().mean_itl_ms(), 10);
  EXPECT_EQ(finished.usage().prompt_tokens(), 3);
  EXPECT_EQ(finished.usage().completion_tokens(), 5);
  EXPECT_EQ(finished.usage().cached_prompt_tokens(), 7);
}

TEST_F(ReplyTest, MeasuresTheSpeedupAgainstPlainSteps) {
  Begin();
  Delta({'a', 'b'}, 0, 30);
  Delta(std::vector<int32_t>(15, 'c'), 0, 110);
  SpeculationFigures figures;
  FinishRequest finish;
  finish.reason = FinishReason::kLength;
  // Sixteen tokens came in 80 ms.
  figures.plain_step = absl::Microseconds(7500);
  EXPECT_EQ(reply_->Finished(finish, figures, "")
                .finished()
                .speculation()
                .measured_speedup(),
            1.5);
  // They came together, but the passes took 160 ms.
  figures.passes_time = absl::Milliseconds(160);
  EXPECT_EQ(reply_->Finished(finish, figures, "")
                .finished()
                .speculation()
                .measured_speedup(),
            0.75);
}

TEST_F(ReplyTest, TellsNoSpeedupOfAFewTokens) {
  Begin();
  Delta({'a', 'b'}, 0, 30);
  Delta(std::vector<int32_t>(13, 'c'), 0, 110);
  SpeculationFigures figures;
  figures.plain_step = absl::Milliseconds(15);
  FinishRequest finish;
  finish.reason = FinishReason::kLength;
  EXPECT_EQ(reply_->Finished(finish, figures, "")
                .finished()
                .speculation()
                .measured_speedup(),
            0);
}

TEST_F(ReplyTest, ClockThatIsSetBackMakesNoNegativeTimes) {
  Begin();
  reply_->OnFirstStep(At(-50), 0);
  Delta({'a'}, 0, -30);
  Delta({'b'}, 0, -60);
  const v1::GenerateTimings timings = Finish(FinishReason::kLength).timings();
  EXPECT_EQ(timings.queue_time_ms(), 0);
  EXPECT_EQ(timings.time_to_first_token_ms(), 0);
  EXPECT_EQ(timings.generation_time_ms(), 0);
  EXPECT_EQ(timings.tokens_per_second(), 0);
}

}  // namespace
}  // namespace specwire::coordinator
