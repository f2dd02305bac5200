// SPDX-License-Identifier: Apache-2.0
#include "cli/score_view.h"

#include <cmath>
#include <limits>
#include <string>

#include "cli/completion.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::cli {
namespace {

using ::testing::HasSubstr;

v1::ScoreResponse MakeScore() {
  v1::ScoreResponse score;
  const float logprobs[] = {
      0, -std::log(8.0f), -std::numeric_limits<float>::infinity(), 0};
  const char* const bytes[] = {
      "The", " caf\xc3\xa9", "\xc3", "\033[2J\"\n\xe2\x80\xae"};
  for (int i = 0; i < 4; ++i) {
    score.add_token_ids(10 + i);
    score.add_token_bytes(bytes[i]);
    v1::PositionLogprobs* entry = score.add_logprobs();
    // Nothing precedes the first.
    if (i == 0) continue;
    entry->mutable_chosen()->set_token_id(10 + i);
    entry->mutable_chosen()->set_logprob(logprobs[i]);
    v1::TokenLogprob* top = entry->add_top();
    top->set_token_id(99);
    top->set_logprob(-0.5f);
  }
  score.set_perplexity(std::numeric_limits<double>::infinity());
  score.set_num_scored_tokens(3);
  return score;
}

TEST(ScoreViewTest, JsonHasNumbersOnly) {
  v1::ScoreResponse score = MakeScore();
  const std::string json = DumpJson(ScoreJson(score, false));
  EXPECT_THAT(json,
              HasSubstr("{\"token_ids\":[10,11,12,13],"
                        "\"logprobs\":[null,-2.0794"));
  EXPECT_THAT(json, HasSubstr(",-9999.0,0.0]"));
  EXPECT_THAT(json, HasSubstr("\"perplexity\":null,\"num_scored_tokens\":3}"));
  score.set_perplexity(2.5);
  EXPECT_THAT(DumpJson(ScoreJson(score, true)),
              HasSubstr("\"top\":[null,[[99,-0.5]],[[99,-0.5]],[[99,-0.5]]],"
                        "\"perplexity\":2.5"));
}

TEST(ScoreViewTest, TextHasALineForEachToken) {
  v1::ScoreResponse score = MakeScore();
  for (v1::PositionLogprobs& entry : *score.mutable_logprobs()) {
    entry.clear_top();
  }
  const std::string text = ScoreText(score);
  EXPECT_THAT(
      text,
      HasSubstr("       0       10           -       -                  "
                "          \"The\"\n"));
  EXPECT_THAT(text,
              HasSubstr("       1       11    0.125000    3.00  ###           "
                        "            \" caf\xc3\xa9\"\n"));
  EXPECT_THAT(text,
              HasSubstr("       2       12    0.000000     inf  "
                        "#######################>  \"\\xc3\"\n"));
  // No minus sign, and nothing that steers the terminal.
  EXPECT_THAT(text, HasSubstr("    1.000000    0.00  "));
  EXPECT_THAT(text, HasSubstr("\"\\x1b[2J\\\"\\n\\u202e\"\n"));
  EXPECT_THAT(text, HasSubstr("perplexity inf over 3 scored tokens\n"));
}

TEST(ScoreViewTest, TextHasCandidatesWhereAskedFor) {
  const std::string text = ScoreText(MakeScore());
  EXPECT_THAT(text, HasSubstr("   \"The\"\n"));
  EXPECT_THAT(text, HasSubstr("\"\\xc3\"  candidates: 99 0.606531\n"));
}

TEST(ScoreViewTest, ReplyWithLogprobs) {
  Completion completion;
  v1::GenerateResponse response;
  response.mutable_started();
  completion.Add(response);
  v1::GeneratePrompt* prompt = response.mutable_prompt();
  prompt->set_text("ab");
  prompt->mutable_logprobs()->add_logprobs();
  completion.Add(response);
  v1::GenerateDelta* delta = response.mutable_delta();
  delta->add_token_ids(7);
  delta->set_text("c");
  v1::PositionLogprobs* entry = delta->add_logprobs();
  entry->mutable_chosen()->set_token_id(7);
  entry->mutable_chosen()->set_logprob(-0.5f);
  v1::TokenLogprob* top = entry->add_top();
  top->set_token_id(8);
  top->set_logprob(-std::numeric_limits<float>::infinity());
  completion.Add(response);
  response.mutable_finished();
  completion.Add(response);
  const std::string json = DumpJson(ToJson(completion, false));
  EXPECT_THAT(json, HasSubstr("\"prompt_logprobs\":[null]"));
  EXPECT_THAT(json, HasSubstr("\"text\":\"abc\""));
  EXPECT_THAT(json,
              HasSubstr("\"logprobs\":[{\"token_id\":7,\"logprob\":-0.5,"
                        "\"top\":[[8,-9999.0]]}]"));
}

}  // namespace
}  // namespace specwire::cli
