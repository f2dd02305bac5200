// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace specwire::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

// A reply of five tokens, two of them accepted draft tokens, that EOS ended.
Completion MakeCompletion() {
  Completion completion;
  v1::GenerateResponse response;
  v1::GenerateStarted* started = response.mutable_started();
  started->set_request_id("r");
  started->set_model("m");
  started->set_model_digest("d1");
  started->mutable_sampling()->set_seed(INT64_MAX);
  started->add_prompt_token_ids(11);
  started->add_prompt_token_ids(12);
  completion.Add(response);
  for (int i = 0; i < 2; ++i) {
    v1::GenerateDelta* delta = response.mutable_delta();
    delta->Clear();
    delta->set_first_index(2 * i);
    delta->add_token_ids(20 + 2 * i);
    delta->add_token_ids(21 + 2 * i);
    delta->set_text(i == 0 ? "ab" : "c\xc3\xa9");
    delta->add_origins(v1::TOKEN_ORIGIN_DRAFT);
    delta->add_origins(v1::TOKEN_ORIGIN_TARGET);
    completion.Add(response);
  }
  v1::GenerateFinished* finished = response.mutable_finished();
  finished->set_finish_reason(v1::FINISH_REASON_STOP);
  finished->set_eos_token_id(23);
  finished->set_text("!");
  finished->mutable_usage()->set_prompt_tokens(2);
  finished->mutable_usage()->set_completion_tokens(4);
  v1::SpeculationStats* stats = finished->mutable_speculation();
  stats->set_mean_acceptance_length(2);
  stats->set_draft_acceptance_rate(0.5);
  stats->set_num_spec_steps(2);
  stats->set_num_draft_tokens(4);
  stats->set_num_accepted_draft_tokens(2);
  stats->add_acceptance_histogram(0);
  stats->add_acceptance_histogram(2);
  stats->set_rule(v1::ACCEPTANCE_RULE_COUPLED);
  stats->set_drafter("ngram");
  finished->mutable_timings()->set_time_to_first_token_ms(12.5);
  finished->mutable_timings()->set_tokens_per_second(40);
  completion.Add(response);
  return completion;
}

TEST(CompletionTest, PrintsTheAgreedFields) {
  const Json json = ToJson(MakeCompletion(), false);
  EXPECT_EQ(json["token_ids"], Json({20, 21, 22, 23}));
  EXPECT_EQ(json["prompt_token_ids"], Json({11, 12}));
  EXPECT_EQ(json["text"], "abc\xc3\xa9!");
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(json["seed"], INT64_MAX);
  EXPECT_EQ(json["model_digest"], "d1");
  EXPECT_EQ(json["resumes"], 0);
  EXPECT_EQ(json["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(json["usage"]["completion_tokens"], 4);
  EXPECT_FALSE(json.contains("logprobs"));
  const Json& stats = json["speculative_decoding"];
  EXPECT_EQ(stats["mean_acceptance_length"], 2.0);
  EXPECT_EQ(stats["draft_acceptance_rate"], 0.5);
  EXPECT_EQ(stats["num_spec_steps"], 2);
  EXPECT_EQ(stats["num_draft_tokens"], 4);
  EXPECT_EQ(stats["num_accepted_draft_tokens"], 2);
  EXPECT_EQ(stats["acceptance_histogram"], Json({0, 2}));
  EXPECT_EQ(stats["rule"], "coupled");
  EXPECT_EQ(json["timings"]["time_to_first_token_ms"], 12.5);
  EXPECT_EQ(json["timings"]["tokens_per_second"], 40.0);
  EXPECT_EQ(json["origins"], Json({"draft", "target", "draft", "target"}));
  EXPECT_EQ(json["matched"]["eos_token_id"], 23);
}

TEST(CompletionTest, PrintsEmptyListsAsLists) {
  Completion completion;
  v1::GenerateResponse response;
  response.mutable_finished()->set_finish_reason(v1::FINISH_REASON_LENGTH);
  completion.Add(response);
  const Json json = ToJson(completion, false);
  EXPECT_EQ(json["token_ids"], Json::array());
  EXPECT_EQ(json["prompt_token_ids"], Json::array());
  EXPECT_EQ(json["speculative_decoding"]["acceptance_histogram"],
            Json::array());
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_TRUE(json["matched"].is_null());
}

TEST(CompletionTest, PrintsLogprobs) {
  Completion completion;
  v1::GenerateResponse response;
  v1::PositionLogprobs* position = response.mutable_delta()->add_logprobs();
  position->mutable_chosen()->set_token_id(5);
  position->mutable_chosen()->set_logprob(-0.5f);
  v1::TokenLogprob* top = position->add_top();
  top->set_token_id(6);
  top->set_logprob(-0.25f);
  completion.Add(response);
  const Json json = ToJson(completion, false);
  ASSERT_EQ(json["logprobs"].size(), 1u);
  EXPECT_EQ(json["logprobs"][0]["token_id"], 5);
  EXPECT_EQ(json["logprobs"][0]["logprob"], -0.5);
  EXPECT_EQ(DumpJson(json["logprobs"][0]["top"]), "[[6,-0.25]]");
}

TEST(CompletionTest, PrintsChoicesByIndex) {
  Completion completion;
  v1::GenerateResponse response;
  response.mutable_delta()->set_choice(1);
  response.mutable_delta()->set_text("second");
  completion.Add(response);
  response.mutable_delta()->set_choice(0);
  response.mutable_delta()->set_text("first");
  completion.Add(response);
  // No coordinator sends this; it must not take all memory.
  response.mutable_delta()->set_choice(INT32_MAX);
  completion.Add(response);
  const Json json = ToJson(completion, true);
  EXPECT_EQ(json["choices"][0]["text"], "first");
  EXPECT_EQ(json["choices"][1]["text"], "second");
  EXPECT_FALSE(json.contains("text"));
  EXPECT_LE(json["choices"].size(), 64u);
}

TEST(CompletionTest, SumsTheUsageOfAllChoices) {
  Completion completion;
  v1::GenerateResponse response;
  response.mutable_started()->add_prompt_token_ids(7);
  completion.Add(response);
  for (int choice = 0; choice < 3; ++choice) {
    response.mutable_finished()->set_choice(choice);
    response.mutable_finished()->mutable_usage()->set_completion_tokens(10 +
                                                                        choice);
    completion.Add(response);
  }
  const Json json = ToJson(completion, true);
  EXPECT_EQ(json["usage"]["prompt_tokens"], 1);
  EXPECT_EQ(json["usage"]["completion_tokens"], 33);
  EXPECT_EQ(json["choices"][2]["usage"]["completion_tokens"], 12);
}

TEST(CompletionTest, SumsUpInTwoLines) {
  const Completion completion = MakeCompletion();
  const std::string text =
      FiguresText(completion.started, completion.choices[0]);
  EXPECT_THAT(text, HasSubstr("4 completion tokens"));
  EXPECT_THAT(text, HasSubstr("finish reason stop"));
  EXPECT_THAT(text, HasSubstr("40.0 tokens/s"));
  EXPECT_THAT(text, HasSubstr("\ndrafter ngram: acceptance rate 50.0 %"));
  EXPECT_THAT(text, HasSubstr("mean accepted length 2.00"));
  EXPECT_THAT(text, HasSubstr("seed 9223372036854775807"));
  EXPECT_THAT(FiguresText({}, Choice()), Not(HasSubstr("acceptance rate")));
}

TEST(CompletionTest, NamesBothWhoDrafted) {
  Completion completion = MakeCompletion();
  v1::SpeculationStats* stats =
      completion.choices[0].finished.mutable_speculation();
  stats->set_num_local_draft_tokens(3);
  stats->set_num_accepted_local_draft_tokens(2);
  EXPECT_THAT(FiguresText(completion.started, completion.choices[0]),
              HasSubstr("drafters ngram (0 of 1 draft tokens accepted) and "
                        "local (2 of 3): acceptance rate 50.0 %"));
  stats->set_drafter("local");
  EXPECT_THAT(FiguresText(completion.started, completion.choices[0]),
              HasSubstr("\ndrafter local: acceptance rate"));
}

TEST(CompletionTest, DumpsMalformedText) {
  EXPECT_EQ(DumpJson(Json("a\xff")), "\"a\xef\xbf\xbd\"");
}

TEST(CompletionTest, DumpsNothingThatSteersATerminal) {
  const Json json = Json("a\033\x7f\xc2\x9b\xe2\x80\xae\xc3\xa9");
  const std::string line = DumpJson(json);
  EXPECT_EQ(line, "\"a\\u001b\\u007f\\u009b\\u202e\xc3\xa9\"");
  EXPECT_EQ(Json::parse(line), json);
}

TEST(CompletionTest, AFigureShowsTheDraftersNameAndDoesNotObeyIt) {
  Completion completion = MakeCompletion();
  completion.choices[0].finished.mutable_speculation()->set_drafter(
      "\033]0;mine\a\xe2\x80\xae");
  const std::string text =
      FiguresText(completion.started, completion.choices[0]);
  EXPECT_THAT(text, HasSubstr("drafter \\x1b]0;mine\\x07\\u202e: "));
}

}  // namespace
}  // namespace specwire::cli
