// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/convert.h"

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "specwire/v1/verifier.pb.h"

namespace specwire {
namespace {

using testing::HasSubstr;

const std::string kDigest(64, 'a');

void ExpectInvalid(const absl::Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << part;
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

TEST(ConvertTest, AbsentSamplingFieldsTakeTheirDefaults) {
  const auto params = FromProto(v1::SamplingParams(), 42);
  ASSERT_TRUE(params.ok());
  EXPECT_EQ(params->temperature, 1.0f);
  EXPECT_EQ(params->top_k, 0);
  EXPECT_EQ(params->top_p, 1.0f);
  EXPECT_EQ(params->min_p, 0.0f);
  EXPECT_EQ(params->repetition_penalty, 1.0f);
  EXPECT_EQ(params->frequency_penalty, 0.0f);
  EXPECT_EQ(params->presence_penalty, 0.0f);
  EXPECT_EQ(params->seed, 42);
  EXPECT_TRUE(params->logit_bias.empty());
}

TEST(ConvertTest, ZeroIsNotAbsent) {
  v1::SamplingParams message;
  message.set_temperature(0);
  message.set_top_p(0);
  message.set_repetition_penalty(0);
  message.set_seed(0);
  const auto params = FromProto(message, 42);
  ASSERT_TRUE(params.ok());
  EXPECT_EQ(params->temperature, 0.0f);
  EXPECT_EQ(params->top_p, 0.0f);
  EXPECT_EQ(params->repetition_penalty, 0.0f);
  EXPECT_EQ(params->seed, 0);
}

TEST(ConvertTest, SamplingParamsRoundTrip) {
  SamplingParams params;
  params.temperature = 0.7f;
  params.top_k = 40;
  params.top_p = 0.9f;
  params.min_p = 0.05f;
  params.repetition_penalty = 1.1f;
  params.frequency_penalty = -0.5f;
  params.presence_penalty = 0.25f;
  params.seed = INT64_MIN;
  params.logit_bias = {{3, -100.0f}, {5, 2.5f}};
  const auto back = FromProto(ToProto(params), 1);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(ToProto(*back).SerializeAsString(),
            ToProto(params).SerializeAsString());
  EXPECT_EQ(back->seed, INT64_MIN);
  EXPECT_EQ(back->logit_bias[1].bias, 2.5f);
}

TEST(ConvertTest, TooManyBiasesAreRefused) {
  v1::SamplingParams message;
  for (int i = 0; i < 1024; ++i) message.add_logit_bias();
  EXPECT_TRUE(FromProto(message, 0).ok());
  message.add_logit_bias();
  ExpectInvalid(FromProto(message, 0).status(),
                "logit_bias: at most 1024 allowed, got 1025");
}

TEST(ConvertTest, StopCriteriaRoundTrip) {
  StopCriteria stop;
  EXPECT_FALSE(FromProto(ToProto(stop))->max_tokens.has_value());
  stop.max_tokens = 0;
  stop.min_tokens = 2;
  stop.stop_token_ids = {7, 8};
  stop.stop = {"a", std::string("b\0c", 3)};
  stop.include_stop_str_in_output = true;
  stop.ignore_eos = true;
  const auto back = FromProto(ToProto(stop));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->max_tokens, 0);
  EXPECT_EQ(back->min_tokens, 2);
  EXPECT_EQ(back->stop_token_ids, stop.stop_token_ids);
  EXPECT_EQ(back->stop, stop.stop);
  EXPECT_TRUE(back->include_stop_str_in_output);
  EXPECT_TRUE(back->ignore_eos);
}

TEST(ConvertTest, TooManyStopsAreRefused) {
  v1::StopCriteria message;
  for (int i = 0; i < 65; ++i) message.add_stop_token_ids(i);
  ExpectInvalid(FromProto(message).status(), "stop_token_ids: at most 64");
  message.clear_stop_token_ids();
  for (int i = 0; i < 17; ++i) *message.add_stop() = std::string(1, 'x');
  ExpectInvalid(FromProto(message).status(), "stop: at most 16");
}

TEST(ConvertTest, RulesRoundTrip) {
  for (const AcceptanceRule rule :
       {AcceptanceRule::kCoupled, AcceptanceRule::kRatio}) {
    EXPECT_EQ(*FromProto(ToProto(rule)), rule);
  }
  EXPECT_EQ(*FromProto(v1::ACCEPTANCE_RULE_UNSPECIFIED),
            AcceptanceRule::kCoupled);
  ExpectInvalid(FromProto(static_cast<v1::AcceptanceRule>(9)).status(),
                "rule: there is no rule 9");
}

TEST(ConvertTest, DraftDistributionsRoundTripWithinTheirLimit) {
  const std::vector<DraftDistribution> q = {{{2, 7}, {.25f, .75f}},
                                            {{0}, {1.0f}}};
  v1::Proposal message;
  ToProto(q, message.mutable_q());
  const auto back = FromProto(message.q());
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*back)[i].token_ids, q[i].token_ids);
    EXPECT_EQ((*back)[i].probabilities, q[i].probabilities);
  }
  // Few distributions can be far too long.
  for (int i = 0; i <= kMaxProposalDistribution; ++i) {
    message.mutable_q(0)->add_probabilities(.5f);
  }
  ExpectInvalid(FromProto(message.q()).status(), "q's tokens in all: at most");
}

TEST(ConvertTest, FinishReasonsRoundTrip) {
  for (const FinishReason reason : {FinishReason::kNone,
                                    FinishReason::kStop,
                                    FinishReason::kLength,
                                    FinishReason::kAborted,
                                    FinishReason::kError}) {
    EXPECT_EQ(*FromProto(ToProto(reason)), reason);
  }
  ExpectInvalid(FromProto(static_cast<v1::FinishReason>(77)).status(), "77");
  EXPECT_EQ(FinishReasonName(FinishReason::kStop), "stop");
  EXPECT_EQ(FinishReasonName(FinishReason::kLength), "length");
  EXPECT_EQ(FinishReasonName(FinishReason::kAborted), "abort");
}

ModelInfo SomeModel() {
  ModelInfo info;
  info.name = "smol";
  info.architecture = "llama";
  info.engine = "reference";
  info.model_digest = kDigest;
  info.vocab_size = 100;
  info.num_layers = 3;
  info.max_model_len = 2048;
  info.eos_ids = {0, 99};
  return info;
}

TEST(ConvertTest, ModelInfoRoundTrips) {
  const v1::ModelDescription message = ToProto(SomeModel(), kDigest, 64);
  EXPECT_EQ(message.vocabulary_fingerprint(), kDigest);
  EXPECT_EQ(message.max_num_sequences(), 64);
  const auto info = FromProto(message);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->name, "smol");
  EXPECT_EQ(info->architecture, "llama");
  EXPECT_EQ(info->engine, "reference");
  EXPECT_EQ(info->model_digest, kDigest);
  EXPECT_EQ(info->vocab_size, 100);
  EXPECT_EQ(info->max_model_len, 2048);
  EXPECT_EQ(info->eos_ids, (std::vector<int32_t>{0, 99}));
}

TEST(ConvertTest, BadModelDescriptionsAreRefused) {
  const auto refused = [](std::function<void(v1::ModelDescription*)> change,
                          const std::string& part) {
    v1::ModelDescription message = ToProto(SomeModel(), kDigest, 64);
    change(&message);
    ExpectInvalid(FromProto(message).status(), part);
  };
  refused([](auto* m) { m->clear_name(); }, "name's length: must be >= 1");
  refused([](auto* m) { m->set_name(std::string(257, 'x')); }, "name's length");
  refused([](auto* m) { m->set_engine(std::string(257, 'x')); }, "engine");
  refused([](auto* m) { m->set_model_digest("abc"); }, "model_digest");
  refused([](auto* m) { m->set_model_digest(std::string(64, 'A')); },
          "model_digest");
  refused([](auto* m) { m->clear_vocabulary_fingerprint(); },
          "vocabulary_fingerprint");
  refused([](auto* m) { m->set_vocab_size(0); }, "vocab_size");
  refused([](auto* m) { m->set_max_model_len(-1); }, "max_model_len");
  refused([](auto* m) { m->set_max_num_sequences(0); }, "max_num_sequences");
  refused([](auto* m) { m->add_eos_token_ids(100); }, "eos_token_ids");
  refused([](auto* m) { m->add_eos_token_ids(-1); }, "eos_token_ids");
  refused(
      [](auto* m) {
        for (int i = 0; i < 65; ++i) m->add_eos_token_ids(1);
      },
      "eos_token_ids: at most 64");
}

TEST(ConvertTest, TokenizersRoundTrip) {
  TokenizerModel model;
  model.kind = "gpt2";
  model.pre = "smollm";
  model.tokens = {"a", "\xff\xfe not UTF-8", ""};
  model.types = {1, 3, 6};
  model.merges = {"a b", "c d"};
  model.eos_id = 0;
  model.add_bos = true;
  model.chat_template = "{{ x }}\xff";
  model.scores = {0, -1.5f, 3};
  model.unk_id = 0;
  model.leading_space = LeadingSpace::kStretchWithout;
  model.normalized_ids = {2, 1};
  const auto back = ParseTokenizer(SerializeTokenizer(model));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->kind, model.kind);
  EXPECT_EQ(back->pre, model.pre);
  EXPECT_EQ(back->tokens, model.tokens);
  EXPECT_EQ(back->types, model.types);
  EXPECT_EQ(back->merges, model.merges);
  EXPECT_FALSE(back->bos_id.has_value());
  EXPECT_EQ(back->eos_id, 0);
  EXPECT_TRUE(back->add_bos);
  EXPECT_EQ(back->chat_template, model.chat_template);
  EXPECT_EQ(back->scores, model.scores);
  EXPECT_EQ(back->unk_id, 0);
  EXPECT_EQ(back->leading_space, LeadingSpace::kStretchWithout);
  EXPECT_EQ(back->normalized_ids, model.normalized_ids);
}

TEST(ConvertTest, BadTokenizersAreRefused) {
  ExpectInvalid(ParseTokenizer("\x0a\xff").status(), "tokenizer");
  v1::TokenizerModel message;
  message.set_chat_template(std::string((1 << 20) + 1, 'x'));
  ExpectInvalid(FromProto(message).status(), "chat_template's bytes");
  message.clear_chat_template();
  message.mutable_types()->Resize((1 << 20) + 1, 1);
  ExpectInvalid(FromProto(message).status(), "types: at most 1048576");
  message.clear_types();
  message.mutable_scores()->Resize((1 << 20) + 1, 1);
  ExpectInvalid(FromProto(message).status(), "scores: at most 1048576");
  message.clear_scores();
  message.mutable_normalized_ids()->Resize((1 << 20) + 1, 1);
  ExpectInvalid(FromProto(message).status(), "normalized_ids: at most 1048576");
}

}  // namespace
}  // namespace specwire
