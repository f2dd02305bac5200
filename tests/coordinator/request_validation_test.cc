// SPDX-License-Identifier: Apache-2.0
#include "coordinator/request_validation.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/model_catalog.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/request_validation_test_util.h"
#include "tests/testing/fake_nodes.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RequestValidationTest, FillsInDefaults) {
  v1::GenerateRequest request;
  request.set_text("hello");
  request.mutable_sampling()->set_temperature(0);
  const auto checked = Check(request);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->params.max_tokens, 4096 - 5);
  EXPECT_EQ(checked->stop.max_tokens, 4096 - 5);
  EXPECT_EQ(checked->params.vocab_size, 260);
  EXPECT_TRUE(checked->params.speculation.enabled);
  EXPECT_EQ(checked->params.speculation.run_length, 4);
  EXPECT_EQ(checked->params.speculation.window, 8);
  EXPECT_EQ(checked->params.speculation.patience, absl::Milliseconds(10));
  EXPECT_TRUE(checked->text.skip_special_tokens);
  EXPECT_FALSE(checked->request_id.empty());
  EXPECT_THAT(checked->params.prompt, ElementsAre('h', 'e', 'l', 'l', 'o'));
}

TEST(RequestValidationTest, TemperatureIsOneUnlessSaid) {
  v1::GenerateRequest request = GreedyRequest("hello", 5);
  request.clear_sampling();
  const auto checked = Check(request);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->params.sampling.temperature, 1.0f);
}

TEST(RequestValidationTest, SeedIsTheCallersOrFresh) {
  v1::GenerateRequest request = GreedyRequest("hello", 5);
  const int64_t first = Check(request)->params.sampling.seed;
  EXPECT_NE(Check(request)->params.sampling.seed, first);
  request.mutable_sampling()->set_seed(-7);
  EXPECT_EQ(Check(request)->params.sampling.seed, -7);
}

TEST(RequestValidationTest, ResumedTokensAreTakenOver) {
  v1::GenerateRequest request = GreedyRequest("hello", 3);
  for (const int32_t id : {'a', 'b', 'c'}) request.add_resume_token_ids(id);
  // A greedy request needs no seed; up to max_tokens may be there already.
  auto checked = Check(request);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_THAT(checked->params.resumed, ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(checked->params.resumed_stop, std::nullopt);
  EXPECT_EQ(checked->params.prompt.size(), 5u);
  // With a seed, at any temperature; the default of max_tokens is the room
  // behind the prompt, as it was at first.
  request.mutable_sampling()->clear_temperature();
  request.mutable_sampling()->set_seed(0);
  request.mutable_stop()->clear_max_tokens();
  checked = Check(request);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->params.max_tokens, 4096 - 5);
}

TEST(RequestValidationTest, StopThatResumedTokensHaveMetIsTold) {
  v1::GenerateRequest request = GreedyRequest("hello", 5);
  request.add_resume_token_ids('a');
  request.add_resume_token_ids(FakeModel::kEos);
  EXPECT_EQ(Check(request)->params.resumed_stop, FakeModel::kEos);
  request.mutable_stop()->set_ignore_eos(true);
  EXPECT_EQ(Check(request)->params.resumed_stop, std::nullopt);
  request.mutable_stop()->add_stop_token_ids(FakeModel::kEos);
  EXPECT_EQ(Check(request)->params.resumed_stop, FakeModel::kEos);
}

TEST(RequestValidationTest, StopTextThatResumedTokensHaveMetIsTold) {
  v1::GenerateRequest request = GreedyRequest("hello", 5);
  request.mutable_stop()->add_stop(std::string("bc"));
  for (const char id : {'a', 'b', 'c'}) request.add_resume_token_ids(id);
  EXPECT_TRUE(Check(request)->params.resumed_stop_text);
  // Not judged before min_tokens.
  request.mutable_stop()->set_min_tokens(2);
  EXPECT_TRUE(Check(request)->params.resumed_stop_text);
  request.mutable_stop()->set_min_tokens(3);
  EXPECT_FALSE(Check(request)->params.resumed_stop_text);
  request.mutable_stop()->set_min_tokens(0);
  request.add_resume_token_ids('d');
  EXPECT_THAT(std::string(Check(request).status().message()),
              HasSubstr("resume_token_ids[3]"));
  // A stop token comes before a stop text at the same token.
  request.mutable_resume_token_ids()->RemoveLast();
  request.mutable_stop()->add_stop_token_ids('c');
  EXPECT_FALSE(Check(request)->params.resumed_stop_text);
  EXPECT_EQ(Check(request)->params.resumed_stop, 'c');
}

TEST(RequestValidationTest, StopTextsNarrowTheVerifiersCredit) {
  v1::GenerateRequest request = GreedyRequest("hello", 5);
  EXPECT_EQ(Check(request)->params.credit, 128);
  request.mutable_stop()->add_stop(std::string("x"));
  EXPECT_EQ(Check(request)->params.credit, 40);
}

TEST(RequestValidationTest, SeveralChoicesAreTakenOver) {
  v1::GenerateRequest request = GreedyRequest("hello", 5);
  EXPECT_EQ(Check(request)->num_choices, 1);
  request.set_n(16);
  EXPECT_EQ(Check(request)->num_choices, 16);
}

TEST(RequestValidationTest, MaxTokensMayFillTheContext) {
  FakeModel model;
  model.max_model_len = 64;
  const auto checked = Check(GreedyRequest("hello", 59), model);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->params.max_tokens, 59);
}

TEST(RequestValidationTest, RunLengthAndWindowFollowOneAnother) {
  v1::GenerateRequest request = GreedyRequest("hello", 5);
  request.mutable_speculation()->set_max_draft_tokens(32);
  EXPECT_EQ(Check(request)->params.speculation.run_length, 32);
  EXPECT_EQ(Check(request)->params.speculation.window, 64);
  request.mutable_speculation()->set_window(32);
  EXPECT_EQ(Check(request)->params.speculation.window, 32);
  request.mutable_speculation()->clear_max_draft_tokens();
  request.mutable_speculation()->set_window(2);
  EXPECT_EQ(Check(request)->params.speculation.run_length, 2);
  EXPECT_EQ(Check(request)->params.speculation.window, 2);
}

TEST(RequestValidationTest, RatioRuleRunsInLockStep) {
  v1::GenerateRequest request = GreedyRequest("hello", 5);
  v1::Speculation* const wanted = request.mutable_speculation();
  wanted->set_rule(v1::ACCEPTANCE_RULE_RATIO);
  const auto defaults = Check(request);
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  const SpeculationSettings& settings = defaults->params.speculation;
  EXPECT_EQ(settings.rule, AcceptanceRule::kRatio);
  EXPECT_EQ(settings.window, settings.run_length);
  EXPECT_EQ(settings.patience, absl::InfiniteDuration());
  // What the reply says may be asked for again.
  wanted->set_max_draft_tokens(6);
  wanted->set_window(6);
  wanted->set_patience_us(-1);
  ASSERT_TRUE(Check(request).ok());
  EXPECT_EQ(Check(request)->params.speculation.window, 6);
}

TEST(RequestValidationTest, PatienceMinusOneIsWithoutLimit) {
  v1::GenerateRequest request = GreedyRequest("hello", 5);
  request.mutable_speculation()->set_patience_us(-1);
  EXPECT_EQ(Check(request)->params.speculation.patience,
            absl::InfiniteDuration());
  request.mutable_speculation()->set_patience_us(0);
  EXPECT_EQ(Check(request)->params.speculation.patience, absl::ZeroDuration());
}

TEST(RequestValidationTest, DrafterMustBeServedUnlessSpeculationIsOff) {
  RequestDefaults defaults;
  defaults.drafters = {"ngram", "oracle"};
  v1::GenerateRequest request = GreedyRequest("hello", 5);
  request.mutable_speculation()->set_drafter("ngram");
  EXPECT_EQ(Check(request, {}, defaults)->drafter, "ngram");
  request.mutable_speculation()->set_drafter("other");
  const absl::Status status = Check(request, {}, defaults).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'other'; served: ngram, oracle"));
  // Names that are none are not echoed as they are, nor whole.
  request.mutable_speculation()->set_drafter("a\x1b");
  EXPECT_THAT(std::string(Check(request, {}, defaults).status().message()),
              HasSubstr("'a\\x1b'"));
  request.mutable_speculation()->set_drafter(std::string(100'000, 'x'));
  const absl::Status long_name = Check(request, {}, defaults).status();
  EXPECT_EQ(long_name.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(long_name.message()),
              HasSubstr("speculation.drafter: 100000 bytes, at most 64"));
  request.mutable_speculation()->set_enabled(false);
  EXPECT_FALSE(Check(request, {}, defaults)->params.speculation.enabled);
  request.mutable_speculation()->set_enabled(true);
  request.mutable_speculation()->set_drafter("none");
  EXPECT_FALSE(Check(request, {}, defaults)->params.speculation.enabled);
}

TEST(RequestValidationTest, BosStandsBeforeRawTextOnlyWhereTheModelSaysSo) {
  FakeModel with_bos;
  with_bos.add_bos = true;
  v1::GenerateRequest request = GreedyRequest("a", 5);
  EXPECT_THAT(Check(request)->params.prompt, ElementsAre('a'));
  EXPECT_THAT(Check(request, with_bos)->params.prompt,
              ElementsAre(FakeModel::kBos, 'a'));
  request.mutable_token_ids()->add_ids('a');
  EXPECT_THAT(Check(request, with_bos)->params.prompt, ElementsAre('a'));
}

TEST(RequestValidationTest, SpecialTextIsSpecialOnlyOutsideOfMessages) {
  v1::GenerateRequest request = GreedyRequest("<|im_end|>", 5);
  EXPECT_THAT(Check(request)->params.prompt, ElementsAre(FakeModel::kImEnd));
  v1::ChatMessage* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("<|im_end|>");
  const std::vector<int32_t> prompt = Check(request)->params.prompt;
  EXPECT_EQ(prompt.front(), FakeModel::kImStart);
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), FakeModel::kImEnd), 1);
}

TEST(RequestValidationTest, ChatNeedsATemplate) {
  FakeModel fake;
  TokenizerModel tokenizer = fake.Tokenizer();
  v1::ChatPrompt chat;
  chat.add_messages()->set_content("hello");
  for (const char* source : {"", "{% bogus %}"}) {
    tokenizer.chat_template = source;
    ModelCatalog catalog;
    ASSERT_TRUE(catalog.Add(Info(fake), tokenizer).ok());
    const auto model = catalog.Find(fake.Info().model_digest);
    const absl::Status status = RenderChat(*model, chat).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("template"));
  }
}

}  // namespace
}  // namespace specwire::coordinator
