// SPDX-License-Identifier: Apache-2.0

// Fields of a request that are refused, each by its name and limit.

#include <limits>
#include <string>
#include <vector>

#include "coordinator/request_validation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/request_validation_test_util.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {
namespace {

using ::testing::HasSubstr;

struct Refusal {
  const char* name;
  void (*spoil)(v1::GenerateRequest*);
  // Must be in the message.
  std::vector<std::string> words;
};

class RefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusalTest, NamesFieldAndLimit) {
  v1::GenerateRequest request = GreedyRequest("hello", 5);
  GetParam().spoil(&request);
  FakeModel model;
  model.max_model_len = 64;
  const absl::Status status = Check(request, model).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& word : GetParam().words) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

using Request = v1::GenerateRequest;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(
    Fields,
    RefusalTest,
    ::testing::ValuesIn(std::vector<Refusal>{
        {"NoPrompt", [](Request* r) { r->clear_prompt(); }, {"prompt"}},
        {"EmptyText", [](Request* r) { r->set_text(""); }, {"prompt.text"}},
        {"LongText",
         [](Request* r) { r->set_text(std::string((4 << 20) + 1, 'a')); },
         {"prompt.text", "4194305", "4194304"}},
        {"NoIds", [](Request* r) { r->mutable_token_ids(); },
         {"prompt.token_ids"}},
        {"NegativeId",
         [](Request* r) { r->mutable_token_ids()->add_ids(-1); },
         {"prompt.token_ids[0]", "-1", "259"}},
        {"IdBeyondVocabulary",
         [](Request* r) {
           r->mutable_token_ids()->add_ids(1);
           r->mutable_token_ids()->add_ids(260);
         },
         {"prompt.token_ids[1]", "260", "259"}},
        {"HugeId",
         [](Request* r) {
           r->mutable_token_ids()->add_ids(
               std::numeric_limits<int32_t>::max());
         },
         {"prompt.token_ids[0]", "2147483647"}},
        {"NoMessages", [](Request* r) { r->mutable_chat(); },
         {"prompt.chat.messages"}},
        {"LongChat",
         [](Request* r) {
           for (int i = 0; i < 2; ++i) {
             r->mutable_chat()->add_messages()->set_content(
                 std::string(3 << 20, 'a'));
           }
         },
         {"prompt.chat.messages", "4194304"}},
        {"PromptFillsContext",
         [](Request* r) { r->set_text(std::string(64, 'a')); },
         {"64 tokens", "context is 64", "no room"}},
        {"PromptBeyondContext",
         [](Request* r) { r->set_text(std::string(100, 'a')); },
         {"100 tokens", "context is 64"}},
        {"PromptBeyondAllTokens",
         [](Request* r) { r->set_text(std::string(4 << 20, 'a')); },
         {"prompt: has 4194304 bytes", "the model's context is 64 tokens",
          "more than 13 bytes"}},
        {"ChatBeyondAllTokens",
         [](Request* r) {
           r->mutable_chat()->add_messages()->set_content(
               std::string(1 << 20, 'a'));
         },
         {"prompt: has", "the model's context is 64 tokens"}},
        {"TooManyStepsOfTheTemplate",
         [](Request* r) {
           for (int i = 0; i < 110'000; ++i) r->mutable_chat()->add_messages();
         },
         {"prompt.chat.messages: ", "more than"}},
        {"ZeroMaxTokens",
         [](Request* r) { r->mutable_stop()->set_max_tokens(0); },
         {"stop.max_tokens", "0"}},
        {"NegativeMaxTokens",
         [](Request* r) { r->mutable_stop()->set_max_tokens(-3); },
         {"stop.max_tokens", "-3"}},
        {"MaxTokensBeyondRoom",
         [](Request* r) { r->mutable_stop()->set_max_tokens(60); },
         {"stop.max_tokens", "60", "5 tokens", "64", "leaves 59"}},
        {"NegativeMinTokens",
         [](Request* r) { r->mutable_stop()->set_min_tokens(-1); },
         {"min_tokens", ">= 0"}},
        {"MinTokensBeyondRoom",
         [](Request* r) {
           r->mutable_stop()->clear_max_tokens();
           r->mutable_stop()->set_min_tokens(60);
         },
         {"min_tokens", "max_tokens (59)", "60"}},
        {"EmptyStopText", [](Request* r) { r->mutable_stop()->add_stop(std::string("")); },
         {"stop", "1 to 256 bytes"}},
        {"LongStopText",
         [](Request* r) {
           r->mutable_stop()->add_stop(std::string(257, 'x'));
         },
         {"stop", "1 to 256 bytes", "257"}},
        {"ManyStopTexts",
         [](Request* r) {
           for (int i = 0; i < 10000; ++i) r->mutable_stop()->add_stop(std::string("x"));
         },
         {"stop", "10000", "16"}},
        {"StopIdBeyondVocabulary",
         [](Request* r) { r->mutable_stop()->add_stop_token_ids(260); },
         {"stop_token_ids", "260"}},
        {"ManyStopIds",
         [](Request* r) {
           for (int i = 0; i < 65; ++i) r->mutable_stop()->add_stop_token_ids(i);
         },
         {"stop_token_ids", "64"}},
        {"NegativeTemperature",
         [](Request* r) { r->mutable_sampling()->set_temperature(-1); },
         {"temperature"}},
        {"NanTemperature",
         [](Request* r) { r->mutable_sampling()->set_temperature(kNan); },
         {"temperature"}},
        {"TopK", [](Request* r) { r->mutable_sampling()->set_top_k(-2); },
         {"top_k", "-2"}},
        {"TopP", [](Request* r) { r->mutable_sampling()->set_top_p(1.5f); },
         {"top_p"}},
        {"MinP", [](Request* r) { r->mutable_sampling()->set_min_p(-0.5f); },
         {"min_p"}},
        {"RepetitionPenalty",
         [](Request* r) { r->mutable_sampling()->set_repetition_penalty(0); },
         {"repetition_penalty"}},
        {"FrequencyPenalty",
         [](Request* r) { r->mutable_sampling()->set_frequency_penalty(3); },
         {"frequency_penalty"}},
        {"PresencePenalty",
         [](Request* r) { r->mutable_sampling()->set_presence_penalty(kNan); },
         {"presence_penalty"}},
        {"LogitBias",
         [](Request* r) {
           r->mutable_sampling()->add_logit_bias()->set_bias(101);
         },
         {"logit_bias", "[-100, 100]"}},
        {"LogitBiasBeyondVocabulary",
         [](Request* r) {
           r->mutable_sampling()->add_logit_bias()->set_token_id(260);
         },
         {"logit_bias", "260"}},
        {"ManyLogitBiases",
         [](Request* r) {
           for (int i = 0; i < 1025; ++i) {
             r->mutable_sampling()->add_logit_bias();
           }
         },
         {"logit_bias", "1024"}},
        {"SeveralResumed",
         [](Request* r) {
           r->set_n(2);
           r->add_resume_token_ids(1);
         },
         {"n:", "2", "resume_token_ids"}},
        {"NoChoice", [](Request* r) { r->set_n(0); }, {"n:", "1 to 16"}},
        {"ManyChoices", [](Request* r) { r->set_n(1000000000); },
         {"n:", "1 to 16"}},
        {"ManyLogprobs", [](Request* r) { r->set_logprobs(21); },
         {"logprobs", "0 to 20"}},
        {"NegativePromptLogprobs",
         [](Request* r) { r->set_prompt_logprobs(-1); },
         {"prompt_logprobs", "0 to 20"}},
        {"ResumeWithoutSeed",
         [](Request* r) {
           r->mutable_sampling()->set_temperature(0.7f);
           r->add_resume_token_ids(1);
         },
         {"sampling.seed", "resume_token_ids"}},
        {"ResumeAtDefaultTemperatureWithoutSeed",
         [](Request* r) {
           r->mutable_sampling()->clear_temperature();
           r->add_resume_token_ids(1);
         },
         {"sampling.seed", "resume_token_ids"}},
        {"ResumeIdBeyondVocabulary",
         [](Request* r) {
           r->add_resume_token_ids(1);
           r->add_resume_token_ids(260);
         },
         {"resume_token_ids[1]", "260", "259"}},
        {"ResumeNegativeId", [](Request* r) { r->add_resume_token_ids(-1); },
         {"resume_token_ids[0]", "-1", "259"}},
        {"ResumeBeyondMaxTokens",
         [](Request* r) {
           for (int i = 0; i < 6; ++i) r->add_resume_token_ids('a');
         },
         {"resume_token_ids", "6 ids", "stop.max_tokens = 5"}},
        {"ResumeBeyondTheContext",
         [](Request* r) {
           r->mutable_stop()->clear_max_tokens();
           for (int i = 0; i < 60; ++i) r->add_resume_token_ids('a');
         },
         {"resume_token_ids", "60 ids", "stop.max_tokens = 59"}},
        {"ResumeBehindEos",
         [](Request* r) {
           r->add_resume_token_ids('a');
           r->add_resume_token_ids(FakeModel::kEos);
           r->add_resume_token_ids('b');
         },
         {"resume_token_ids[2]", "resume_token_ids[1] = 256"}},
        {"ResumeBehindStopToken",
         [](Request* r) {
           r->mutable_stop()->add_stop_token_ids('a');
           r->mutable_stop()->set_ignore_eos(true);
           r->add_resume_token_ids(FakeModel::kEos);
           r->add_resume_token_ids('a');
           r->add_resume_token_ids('a');
         },
         {"resume_token_ids[2]", "resume_token_ids[1] = 97"}},
        {"ResumeOfSeveralChoices",
         [](Request* r) {
           r->set_n(2);
           r->add_resume_token_ids(1);
         },
         {"n:", "2"}},
        {"CacheSaltTooLong",
         [](Request* r) { r->set_cache_salt(std::string(65, 's')); },
         {"cache_salt", "0 to 64"}},
        {"PriorityOutOfRange", [](Request* r) { r->set_priority(101); },
         {"priority", "-100 to 100"}},
        {"RequestIdTooLong",
         [](Request* r) { r->set_request_id(std::string(129, 'a')); },
         {"request_id", "128"}},
        {"RequestIdNotPrintable",
         [](Request* r) { r->set_request_id("a\nb"); },
         {"request_id"}},
        {"RatioRuleWithPatience",
         [](Request* r) {
           r->mutable_speculation()->set_rule(v1::ACCEPTANCE_RULE_RATIO);
           r->mutable_speculation()->set_patience_us(5000);
         },
         {"speculation.patience_us", "RATIO", "lock-step"}},
        {"RatioRuleWithoutPatience",
         [](Request* r) {
           r->mutable_speculation()->set_rule(v1::ACCEPTANCE_RULE_RATIO);
           r->mutable_speculation()->set_patience_us(0);
         },
         {"speculation.patience_us", "RATIO", "lock-step"}},
        {"RatioRuleWithWindow",
         [](Request* r) {
           r->mutable_speculation()->set_rule(v1::ACCEPTANCE_RULE_RATIO);
           r->mutable_speculation()->set_max_draft_tokens(4);
           r->mutable_speculation()->set_window(8);
         },
         {"speculation.window", "RATIO", "lock-step"}},
        {"UnknownRule",
         [](Request* r) {
           r->mutable_speculation()->set_rule(
               static_cast<v1::AcceptanceRule>(9));
         },
         {"rule"}},
        {"NoDraftTokens",
         [](Request* r) { r->mutable_speculation()->set_max_draft_tokens(0); },
         {"speculation.max_draft_tokens", "1 to 32"}},
        {"ManyDraftTokens",
         [](Request* r) { r->mutable_speculation()->set_max_draft_tokens(33); },
         {"speculation.max_draft_tokens", "1 to 32"}},
        {"Patience",
         [](Request* r) { r->mutable_speculation()->set_patience_us(-2); },
         {"speculation.patience_us", "-2"}},
        {"SmallWindow",
         [](Request* r) {
           r->mutable_speculation()->set_max_draft_tokens(8);
           r->mutable_speculation()->set_window(7);
         },
         {"speculation.window", "8 to 256"}},
        {"LargeWindow",
         [](Request* r) { r->mutable_speculation()->set_window(257); },
         {"speculation.window", "256"}},
    }),
    [](const ::testing::TestParamInfo<Refusal>& refusal) {
      return refusal.param.name;
    });

}  // namespace
}  // namespace specwire::coordinator
