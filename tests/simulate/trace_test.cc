// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "bench/simulate/trace_drafter.h"

namespace specwire::simulate {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Trace SmallTrace() {
  Trace trace;
  trace.question_id = 7;
  trace.category = "qa";
  trace.drafter = "hybrid";
  trace.prompt_tokens = 3;
  trace.stopped = true;
  trace.positions = {{.proposed = 16,
                      .right = 2,
                      .model = true,
                      .survival = std::vector<float>(16, 0.5f)},
                     {.proposed = 0},
                     {.proposed = 2, .right = 1, .survival = {1.0f, 0.25f}}};
  return trace;
}

TEST(TraceTest, ReadsWhatItWrites) {
  const Trace written = SmallTrace();
  const absl::StatusOr<Trace> read = ParseTrace(FormatTrace(written));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->question_id, 7);
  EXPECT_EQ(read->category, "qa");
  EXPECT_EQ(read->drafter, "hybrid");
  EXPECT_EQ(read->prompt_tokens, 3);
  EXPECT_TRUE(read->stopped);
  ASSERT_EQ(read->positions.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read->positions[i].proposed, written.positions[i].proposed);
    EXPECT_EQ(read->positions[i].right, written.positions[i].right);
    EXPECT_EQ(read->positions[i].model, written.positions[i].model);
    ASSERT_EQ(read->positions[i].survival.size(),
              written.positions[i].survival.size());
    for (size_t j = 0; j < written.positions[i].survival.size(); ++j) {
      EXPECT_NEAR(read->positions[i].survival[j],
                  written.positions[i].survival[j],
                  0.008);
    }
  }
}

TEST(TraceTest, WithoutEstimatesAndModelHasNeitherField) {
  Trace trace = SmallTrace();
  for (TracePosition& position : trace.positions) {
    position.model = false;
    position.survival.clear();
  }
  const std::string line = FormatTrace(trace);
  EXPECT_THAT(line, Not(HasSubstr("survival")));
  EXPECT_THAT(line, Not(HasSubstr("model")));
  const absl::StatusOr<Trace> read = ParseTrace(line);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->positions[0].survival, IsEmpty());
}

TEST(TraceTest, RefusesLinesThatAreNoTraces) {
  const std::string good =
      R"({"question_id":1,"category":"qa","drafter":"ngram","prompt":3,)"
      R"("stopped":false,"proposed":"20","right":"10"})";
  EXPECT_TRUE(ParseTrace(good).ok());
  const auto message = [&](const std::string& from, const std::string& to) {
    std::string line = good;
    const size_t at = line.find(from);
    line.replace(at, from.size(), to);
    return std::string(ParseTrace(line).status().message());
  };
  EXPECT_THAT(std::string(ParseTrace("[1]").status().message()),
              HasSubstr("JSON object"));
  EXPECT_THAT(message("\"prompt\":3", "\"prompt\":0"), HasSubstr("prompt"));
  EXPECT_THAT(message("\"prompt\":3", "\"prompt\":\"3\""), HasSubstr("prompt"));
  EXPECT_THAT(message("\"stopped\":false", "\"stopped\":1"),
              HasSubstr("stopped"));
  EXPECT_THAT(message("\"category\":\"qa\",", ""), HasSubstr("category"));
  EXPECT_THAT(message("\"20\"", "\"2x\""), HasSubstr("'x'"));
  EXPECT_THAT(message("\"20\"", "\"\""), HasSubstr("proposed"));
  EXPECT_THAT(message("\"10\"", "\"1\""), HasSubstr("right"));
  // More than was proposed, and more than there is.
  EXPECT_THAT(message("\"10\"", "\"30\""), HasSubstr("right"));
  EXPECT_THAT(message("\"20\",\"right\":\"10\"", "\"02\",\"right\":\"02\""),
              HasSubstr("right"));
  EXPECT_THAT(
      message("\"right\":\"10\"", "\"right\":\"10\",\"survival\":\"a\""),
      HasSubstr("survival is too short"));
  EXPECT_THAT(
      message("\"right\":\"10\"", "\"right\":\"10\",\"survival\":\"aaa\""),
      HasSubstr("survival is too long"));
}

TEST(TraceTest, ReadsLinesAndNamesTheOneThatIsWrong) {
  std::istringstream input(FormatTrace(SmallTrace()) + "\n\n{}\n");
  EXPECT_THAT(std::string(ReadTraces(&input, "file").status().message()),
              HasSubstr("file:3: question_id"));
  std::istringstream empty("\n");
  EXPECT_FALSE(ReadTraces(&empty, "file").ok());
}

TEST(TraceTest, ConstantIsRightAsOftenAsItIsTold) {
  const Trace trace = ConstantTrace(0.7, 16, 20000, /*seed=*/1);
  int right = 0;
  for (size_t i = 0; i < trace.positions.size(); ++i) {
    right += trace.positions[i].right > 0 ? 1 : 0;
    // One position's run is the rest of the run before it.
    if (i > 0 && trace.positions[i - 1].right > 0 &&
        trace.positions[i - 1].right < 16) {
      EXPECT_EQ(trace.positions[i].right, trace.positions[i - 1].right - 1);
    }
  }
  EXPECT_NEAR(right / 20000.0, 0.7, 0.015);
}

TEST(TraceTest, JoinedRunsEndWhereTheWholeEnds) {
  const Trace whole =
      JoinTraces({ConstantTrace(1, 4, 5, 1), ConstantTrace(0, 2, 3, 1)}, 11);
  ASSERT_EQ(whole.positions.size(), 11u);
  EXPECT_EQ(whole.positions[0].right, 4);
  EXPECT_EQ(whole.positions[4].right, 1);
  EXPECT_EQ(whole.positions[5].right, 0);
  EXPECT_EQ(whole.positions[5].proposed, 2);
  EXPECT_EQ(whole.positions[8].right, 3);
}

// Two questions of 5 and 7 tokens.
std::vector<Trace> TwoTraces(bool survival) {
  std::vector<Trace> traces = {ConstantTrace(0.5, 4, 5, 1, survival),
                               ConstantTrace(0.5, 2, 7, 2, survival)};
  traces[0].question_id = 81;
  traces[1].question_id = 82;
  return traces;
}

TEST(TraceTest, LocalTracesAreThoseOfTheSameText) {
  std::vector<Trace> traces = TwoTraces(false);
  std::vector<Trace> local = TwoTraces(true);
  local[0].positions[0].right = 3;
  std::swap(local[0], local[1]);
  ASSERT_TRUE(AddLocalTraces(local, &traces).ok());
  ASSERT_NE(traces[0].local, nullptr);
  EXPECT_EQ(traces[0].local->positions[0].right, 3);
  EXPECT_EQ(traces[1].local->question_id, 82);
  const Trace joined = JoinTraces(traces, 11);
  ASSERT_NE(joined.local, nullptr);
  EXPECT_EQ(joined.local->positions.size(), 11u);
  EXPECT_EQ(joined.local->positions[5].proposed, 2);
  traces[1].local = nullptr;
  EXPECT_EQ(JoinTraces(traces, 11).local, nullptr);
}

TEST(TraceTest, LocalTracesThatDoNotFitAreRefused) {
  std::vector<Trace> traces = TwoTraces(false);
  std::vector<Trace> local = TwoTraces(true);
  local[1].positions.pop_back();
  absl::Status status = AddLocalTraces(local, &traces);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("82"));
  status = AddLocalTraces(TwoTraces(false), &traces);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("survival"));
}

std::vector<int32_t> Path(const Trace& trace, int length) {
  const std::vector<int32_t> text = TraceText(trace);
  return {text.begin(), text.begin() + length};
}

TEST(TraceDrafterTest, ProposesTheTracesRun) {
  const Trace trace = SmallTrace();
  TraceDrafter drafter(&trace);
  const TraceDrafter::Result result =
      drafter.Propose(Path(trace, 3), {.max_tokens = 4});
  EXPECT_THAT(
      result.run.tokens,
      ElementsAre(RightToken(3), RightToken(4), WrongToken(5), WrongToken(6)));
  EXPECT_EQ(result.model_tokens, 4);
  EXPECT_EQ(result.run.survival.size(), 4u);
  EXPECT_THAT(drafter.Propose(Path(trace, 4), {.max_tokens = 4}).run.tokens,
              IsEmpty());
  EXPECT_THAT(drafter.Propose(Path(trace, 6), {.max_tokens = 4}).run.tokens,
              IsEmpty());
}

TEST(TraceDrafterTest, EndsARunWhereItIsUnsure) {
  const Trace trace = SmallTrace();
  TraceDrafter drafter(&trace);
  const TraceDrafter::Result lookup =
      drafter.Propose(Path(trace, 5), {.max_tokens = 4, .min_survival = 0.5f});
  EXPECT_THAT(lookup.run.tokens, ElementsAre(RightToken(5)));
  EXPECT_EQ(lookup.model_tokens, 0);
  const TraceDrafter::Result model =
      drafter.Propose(Path(trace, 3), {.max_tokens = 4, .min_survival = 0.9f});
  EXPECT_THAT(model.run.tokens, IsEmpty());
  // A model has to make the token to know.
  EXPECT_EQ(model.model_tokens, 1);
}

TEST(TraceDrafterTest, BehindAWrongTokenTheRunGoesOnWrong) {
  Trace trace = ConstantTrace(0, 6, 10, 1, /*survival=*/true);
  for (TracePosition& position : trace.positions) {
    position.survival = {0.8f, 0.4f, 0.2f, 0.1f, 0.1f, 0.1f};
  }
  TraceDrafter drafter(&trace);
  std::vector<int32_t> path = Path(trace, 1);
  for (const int32_t token :
       drafter.Propose(path, {.max_tokens = 4}).run.tokens) {
    path.push_back(token);
  }
  const DraftRun rest = drafter.Propose(path, {.max_tokens = 4}).run;
  // Six in all.
  EXPECT_THAT(rest.tokens, ElementsAre(WrongToken(5), WrongToken(6)));
  EXPECT_THAT(rest.survival,
              ElementsAre(FloatNear(1, 1e-5f), FloatNear(1, 1e-5f)));
  path.insert(path.end(), rest.tokens.begin(), rest.tokens.end());
  EXPECT_THAT(drafter.Propose(path, {.max_tokens = 2}).run.tokens,
              ElementsAre(WrongToken(7), WrongToken(8)));
}

}  // namespace
}  // namespace specwire::simulate
