// SPDX-License-Identifier: Apache-2.0
#include "coordinator/request_validation.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "coordinator/model_catalog.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_nodes.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

VerifierInfo Info(const FakeModel& model) {
  return {model.Info(), model.Fingerprint(), 64};
}

std::shared_ptr<const CatalogModel> Model(const FakeModel& model = {}) {
  ModelCatalog catalog;
  EXPECT_TRUE(catalog.Add(Info(model), model.Tokenizer()).ok());
  return catalog.Find(model.Info().model_digest);
}

// The status that a Generate call with `request` gets.
absl::StatusOr<CheckedRequest> Check(const v1::GenerateRequest& request,
                                     const FakeModel& model = {},
                                     const RequestDefaults& defaults = {}) {
  if (absl::Status status = CheckGenerateFields(request); !status.ok()) {
    return status;
  }
  return BuildRequest(request, Model(model), defaults);
}

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

TEST(ModelCatalogTest, RefusesVocabularyThatIsNotTheTokenizers) {
  const FakeModel fake;
  VerifierInfo info = Info(fake);
  info.vocabulary_fingerprint = "0000";
  ModelCatalog catalog;
  EXPECT_EQ(catalog.Add(info, fake.Tokenizer()).code(),
            absl::StatusCode::kFailedPrecondition);
  info = Info(fake);
  info.model.vocab_size = 300;
  EXPECT_EQ(catalog.Add(info, fake.Tokenizer()).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(catalog.Find(info.model.model_digest), nullptr);
}

class ResolveModelTest : public ::testing::Test {
 protected:
  // A verifier of `model` joins; returns its registration.
  Registry::Registration Serve(const std::string& node,
                               const FakeModel& model) {
    const auto registration =
        *registry_.Register({node,
                             NodeRole::kVerifier,
                             absl::StrCat("127.0.0.1:", ++port_),
                             node,
                             1},
                            absl::Now());
    EXPECT_TRUE(catalog_.Add(Info(model), model.Tokenizer()).ok());
    registry_.OnVerifierInfo(registration.node_id, Info(model));
    return registration;
  }
  absl::StatusOr<std::string> Resolve(const std::string& name) {
    const auto model = ResolveModel(name, catalog_, registry_);
    if (!model.ok()) return model.status();
    return (*model)->info.model.model_digest;
  }

  Registry registry_{RegistryOptions()};
  ModelCatalog catalog_;
  int port_ = 0;
};

TEST_F(ResolveModelTest, UnavailableWithoutVerifier) {
  EXPECT_EQ(Resolve("").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Resolve("fake").status().code(), absl::StatusCode::kUnavailable);
  const auto registration = Serve("v", FakeModel());
  EXPECT_TRUE(Resolve("fake").ok());
  registry_.OnDetached(registration, "power cut", absl::Now());
  EXPECT_THAT(std::string(Resolve("fake").status().message()),
              HasSubstr("power cut"));
}

TEST_F(ResolveModelTest, FindsByNameAndDigest) {
  FakeModel a;
  a.name = "a";
  FakeModel b;
  b.name = "b";
  Serve("v", a);
  EXPECT_EQ(*Resolve(""), a.Info().model_digest);
  Serve("w", b);
  EXPECT_EQ(*Resolve("a"), a.Info().model_digest);
  EXPECT_EQ(*Resolve(b.Info().model_digest), b.Info().model_digest);
  const absl::Status unnamed = Resolve("").status();
  EXPECT_EQ(unnamed.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unnamed.message()), HasSubstr("a, b"));
  const absl::Status unknown = Resolve("c").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("'c'"));
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("a, b"));
}

TEST_F(ResolveModelTest, TakesTheDigestWithMostVerifiers) {
  FakeModel one;
  FakeModel two;
  two.salt = 1;
  Serve("v1", one);
  Serve("v2", two);
  EXPECT_EQ(*Resolve(""),
            std::min(one.Info().model_digest, two.Info().model_digest));
  const FakeModel& other = *Resolve("") == one.Info().model_digest ? two : one;
  Serve("v3", other);
  EXPECT_EQ(*Resolve("fake"), other.Info().model_digest);
}

}  // namespace
}  // namespace specwire::coordinator
