// SPDX-License-Identifier: Apache-2.0
#include "cli/logprobs_view.h"

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::cli {
namespace {

using ::testing::HasSubstr;

v1::PositionLogprobs Entry(int id, double probability) {
  v1::PositionLogprobs entry;
  entry.mutable_chosen()->set_token_id(id);
  entry.mutable_chosen()->set_logprob(
      static_cast<float>(std::log(probability)));
  return entry;
}

void AddCandidate(int id, double probability, v1::PositionLogprobs* entry) {
  v1::TokenLogprob* const candidate = entry->add_top();
  candidate->set_token_id(id);
  candidate->set_logprob(static_cast<float>(std::log(probability)));
}

// A prompt of two tokens and one delta of three, the second of which has to
// wait for the third to be a character.
Completion MakeCompletion() {
  Completion completion;
  v1::GenerateResponse response;
  response.mutable_started()->add_prompt_token_ids(7);
  response.mutable_started()->add_prompt_token_ids(8);
  completion.Add(response);
  v1::GenerateDelta* const delta = response.mutable_delta();
  delta->set_text(" a\xc3\xa9\033");
  for (const int end : {2, 2, 5}) delta->add_text_ends(end);
  for (const int id : {20, 21, 22}) {
    delta->add_token_ids(id);
    *delta->add_logprobs() = Entry(id, 0.25);
  }
  completion.Add(response);
  return completion;
}

TEST(LogprobsViewTest, NothingIsShownUnlessAskedFor) {
  Completion completion = MakeCompletion();
  completion.choices[0].logprobs.clear();
  EXPECT_EQ(PromptLogprobsText(completion), "");
  EXPECT_EQ(LogprobsText(completion, completion.choices[0]), "");
}

TEST(LogprobsViewTest, HasALineForEachTokenWithItsText) {
  const Completion completion = MakeCompletion();
  const std::string text = LogprobsText(completion, completion.choices[0]);
  EXPECT_EQ(text,
            "log-probabilities of the completion\n"
            "POSITION  ID  LOGPROB  PROBABILITY  TEXT\n"
            "2         20  -1.3863  0.250000     \" a\"\n"
            "3         21  -1.3863  0.250000     \"\"\n"
            "4         22  -1.3863  0.250000     \"\xc3\xa9\\x1b\"\n");
}

TEST(LogprobsViewTest, ShowsCandidatesAndWhatHasNoProbability) {
  Completion completion = MakeCompletion();
  v1::PositionLogprobs* const entry = &completion.choices[0].logprobs[1];
  AddCandidate(30, 0.5, entry);
  AddCandidate(31, 0.125, entry);
  entry->mutable_chosen()->set_logprob(-std::numeric_limits<float>::infinity());
  const std::string text = LogprobsText(completion, completion.choices[0]);
  EXPECT_THAT(text, HasSubstr("TEXT     CANDIDATES (ID PROBABILITY)\n"));
  EXPECT_THAT(text,
              HasSubstr("-inf     0.000000     \"\"       "
                        "30 0.500000, 31 0.125000\n"));
  EXPECT_EQ(CandidatesText(*entry), "30 0.500000, 31 0.125000");
}

TEST(LogprobsViewTest, NothingPrecedesThePromptsFirstToken) {
  Completion completion = MakeCompletion();
  completion.prompt_logprobs = {v1::PositionLogprobs(), Entry(8, 0.5)};
  const std::string text = PromptLogprobsText(completion);
  EXPECT_EQ(text,
            "log-probabilities of the prompt\n"
            "POSITION  ID  LOGPROB  PROBABILITY\n"
            "0         -   -        -\n"
            "1         8   -0.6931  0.500000\n");
}

TEST(LogprobsViewTest, EndsOutsideOfTheTextDoNoHarm) {
  Completion completion;
  v1::GenerateResponse response;
  v1::GenerateDelta* const delta = response.mutable_delta();
  delta->set_text("ab");
  for (const int end : {5, 1, -3}) delta->add_text_ends(end);
  for (int i = 0; i < 4; ++i) {
    delta->add_token_ids(i);
    *delta->add_logprobs() = Entry(i, 1);
  }
  completion.Add(response);
  EXPECT_THAT(completion.choices[0].pieces,
              testing::ElementsAre("ab", "", "", ""));
}

}  // namespace
}  // namespace specwire::cli
