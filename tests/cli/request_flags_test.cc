// SPDX-License-Identifier: Apache-2.0
#include "cli/request_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"

namespace specwire::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Parses the flags as a shell would hand them over, with a prompt behind.
absl::StatusOr<v1::GenerateRequest> Parse(std::vector<std::string> arguments,
                                          std::string* prompt = nullptr) {
  CLI::App app;
  RequestFlags flags;
  std::string text;
  AddRequestFlags(&app, &flags);
  app.add_option("PROMPT", text);
  // CLI11 takes them from the back.
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  app.parse(std::move(reversed));
  if (prompt != nullptr) {
    *prompt = text;
  }
  return MakeRequest(flags);
}

TEST(RequestFlagsTest, LeavesAbsentFlagsToTheCoordinator) {
  const absl::StatusOr<v1::GenerateRequest> request = Parse({});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_FALSE(request->sampling().has_temperature());
  EXPECT_FALSE(request->sampling().has_seed());
  EXPECT_FALSE(request->stop().has_max_tokens());
  EXPECT_FALSE(request->speculation().has_enabled());
  EXPECT_FALSE(request->speculation().has_patience_us());
  EXPECT_EQ(request->speculation().rule(), v1::ACCEPTANCE_RULE_UNSPECIFIED);
  EXPECT_EQ(request->model(), "");
}

TEST(RequestFlagsTest, SendsEveryFlagAsItIs) {
  const absl::StatusOr<v1::GenerateRequest> request =
      Parse({"--model",
             "m",
             "--max_tokens",
             "0",
             "--temperature",
             "0.5",
             "--top_k",
             "-1",
             "--top_p",
             "0.9",
             "--min_p",
             "0.1",
             "--seed",
             "-9223372036854775808",
             "--repetition_penalty",
             "1.1",
             "--frequency_penalty",
             "-0.5",
             "--presence_penalty",
             "0.25",
             "--min_tokens",
             "2",
             "--logit_bias",
             "42=-1.5",
             "--logit_bias",
             "7=100",
             "--stop_token_ids",
             "3",
             "--stop_token_ids",
             "-1",
             "--include_stop_str_in_output",
             "--ignore_eos",
             "--no_speculation",
             "--max_draft_tokens",
             "8",
             "--drafter",
             "ngram",
             "--rule",
             "ratio",
             "--patience_us",
             "-1",
             "--window",
             "16"});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->model(), "m");
  const v1::SamplingParams& sampling = request->sampling();
  EXPECT_FLOAT_EQ(sampling.temperature(), 0.5f);
  EXPECT_EQ(sampling.top_k(), -1);
  EXPECT_FLOAT_EQ(sampling.top_p(), 0.9f);
  EXPECT_FLOAT_EQ(sampling.min_p(), 0.1f);
  EXPECT_EQ(sampling.seed(), INT64_MIN);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty(), 1.1f);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty(), -0.5f);
  EXPECT_FLOAT_EQ(sampling.presence_penalty(), 0.25f);
  ASSERT_EQ(sampling.logit_bias_size(), 2);
  EXPECT_EQ(sampling.logit_bias(0).token_id(), 42);
  EXPECT_FLOAT_EQ(sampling.logit_bias(0).bias(), -1.5f);
  EXPECT_EQ(sampling.logit_bias(1).token_id(), 7);
  const v1::StopCriteria& stop = request->stop();
  EXPECT_TRUE(stop.has_max_tokens());
  EXPECT_EQ(stop.max_tokens(), 0);
  EXPECT_EQ(stop.min_tokens(), 2);
  EXPECT_THAT(stop.stop_token_ids(), ElementsAre(3, -1));
  EXPECT_TRUE(stop.include_stop_str_in_output());
  EXPECT_TRUE(stop.ignore_eos());
  const v1::Speculation& speculation = request->speculation();
  EXPECT_TRUE(speculation.has_enabled());
  EXPECT_FALSE(speculation.enabled());
  EXPECT_EQ(speculation.max_draft_tokens(), 8);
  EXPECT_EQ(speculation.drafter(), "ngram");
  EXPECT_EQ(speculation.rule(), v1::ACCEPTANCE_RULE_RATIO);
  EXPECT_EQ(speculation.patience_us(), -1);
  EXPECT_EQ(speculation.window(), 16);
}

TEST(RequestFlagsTest, TakesStopTextsLiterally) {
  std::string prompt;
  const absl::StatusOr<v1::GenerateRequest> request =
      Parse({"--stop", "[a,b]", "--stop", "x y", "the prompt"}, &prompt);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(request->stop().stop(), ElementsAre("[a,b]", "x y"));
  EXPECT_EQ(prompt, "the prompt");
}

TEST(RequestFlagsTest, RefusesMalformedBiases) {
  for (const char* text : {"42", "=1", "x=1", "42=", "42=y", "1=2=3"}) {
    const absl::Status status = Parse({"--logit_bias", text}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--logit_bias"));
  }
}

TEST(RequestFlagsTest, RefusesTextThatIsNotUtf8) {
  EXPECT_FALSE(Parse({"--stop", "\xff"}).ok());
  EXPECT_FALSE(Parse({"--model", "\xff"}).ok());
  EXPECT_FALSE(Parse({"--drafter", "\xff"}).ok());
}

TEST(RequestFlagsTest, RefusesNumbersThatDoNotFit) {
  EXPECT_THROW(Parse({"--max_tokens", "99999999999"}).IgnoreError(),
               CLI::ParseError);
  EXPECT_THROW(Parse({"--temperature", "warm"}).IgnoreError(), CLI::ParseError);
  EXPECT_THROW(Parse({"--rule", "fair"}).IgnoreError(), CLI::ParseError);
}

TEST(ParseTokenIdsTest, ReadsLists) {
  EXPECT_THAT(*ParseTokenIds("1,2,-3", "f"), ElementsAre(1, 2, -3));
  EXPECT_THAT(*ParseTokenIds("", "f"), IsEmpty());
  for (const char* text : {"1,,2", "1,", "x", "2147483648", "1.5"}) {
    const absl::Status status = ParseTokenIds(text, "--prompt_ids").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--prompt_ids"));
  }
}

}  // namespace
}  // namespace specwire::cli
