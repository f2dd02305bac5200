// SPDX-License-Identifier: Apache-2.0
#include "cli/resuming_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/table.h"

namespace specwire::cli {
namespace {

using testing::ElementsAre;

TEST(ResumingCallTest, ResumeRequestHoldsWhatTheReplyTold) {
  v1::GenerateRequest original;
  original.mutable_chat()->add_messages()->set_content("hello");
  original.set_skip_special_tokens(false);
  v1::GenerateStarted started;
  started.set_request_id("r");
  started.set_model("m");
  started.mutable_sampling()->set_seed(-5);
  started.mutable_sampling()->set_temperature(0.5f);
  started.mutable_stop()->set_max_tokens(7);
  started.mutable_speculation()->set_max_draft_tokens(3);
  started.add_prompt_token_ids(11);
  started.add_prompt_token_ids(12);
  const v1::GenerateRequest request =
      MakeResumeRequest(original, started, {20, 21, 22});
  EXPECT_THAT(request.token_ids().ids(), ElementsAre(11, 12));
  EXPECT_THAT(request.resume_token_ids(), ElementsAre(20, 21, 22));
  EXPECT_EQ(request.sampling().seed(), -5);
  EXPECT_EQ(request.sampling().temperature(), 0.5f);
  EXPECT_EQ(request.stop().max_tokens(), 7);
  EXPECT_EQ(request.speculation().max_draft_tokens(), 3);
  EXPECT_EQ(request.model(), "m");
  EXPECT_EQ(request.request_id(), "r");
  // The caller's, which no reply tells.
  EXPECT_TRUE(request.has_skip_special_tokens());
  EXPECT_FALSE(request.skip_special_tokens());
}

TEST(ResumingCallTest, ResumeRequestAsksForThePromptOnlyIfNoTokenHasCome) {
  v1::GenerateRequest original;
  original.set_logprobs(3);
  original.set_prompt_logprobs(2);
  original.set_echo(true);
  const v1::GenerateRequest early = MakeResumeRequest(original, {}, {});
  EXPECT_EQ(early.prompt_logprobs(), 2);
  EXPECT_TRUE(early.echo());
  const v1::GenerateRequest late = MakeResumeRequest(original, {}, {20});
  EXPECT_FALSE(late.has_prompt_logprobs());
  EXPECT_FALSE(late.echo());
  EXPECT_EQ(late.logprobs(), 3);
}

TEST(TableTest, ColumnsAreAlignedAndLinesEndWithoutSpaces) {
  EXPECT_EQ(TableText({{"A", "LONG", "C"}, {"long", "b", ""}}),
            "A     LONG  C\n"
            "long  b\n");
  EXPECT_EQ(TableText({}), "");
}

}  // namespace
}  // namespace specwire::cli
