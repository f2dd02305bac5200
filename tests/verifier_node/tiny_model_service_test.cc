// SPDX-License-Identifier: Apache-2.0

// The service over a real engine with a tiny random model.

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "common/metrics/names.h"
#include "common/model/engine.h"
#include "common/rpc/convert.h"
#include "common/text/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/testing/greedy_text.h"
#include "tests/verifier_node/verifier_harness.h"
#include "verifier_node/step_costs.h"

namespace specwire::verifier {
namespace {

class TinyModelServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    engine_ = LoadTinyEngine(SPECWIRE_TINY_MODEL);
    ASSERT_NE(engine_, nullptr);
  }

  std::unique_ptr<Engine> engine_;
};

TEST_F(TinyModelServiceTest, SpeculationNeverChangesTheText) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 90; ++i) prompt.push_back(3 + i * 31 % 300);
  constexpr int kTokens = 64;
  const std::vector<int32_t> plain = GreedyText(engine_.get(), prompt, kTokens);
  VerifierHarness verifier(engine_.get());
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  for (const int64_t patience_us : {int64_t{0}, int64_t{500}, int64_t{-1}}) {
    for (const int run_length : {1, 3, 8}) {
      v1::DecodeRequest open = OpenRequest(prompt, kTokens, patience_us);
      open.mutable_open()->set_ignore_eos(true);
      DecodeClient client(verifier.stub());
      client.Send(open);
      int length = 90;
      while (length < 90 + kTokens) {
        // Mostly right, and sometimes too late.
        std::vector<int32_t> run;
        const int end = std::min(length + run_length, 90 + kTokens);
        for (int i = length; i < end; ++i) {
          const bool right = random() % 4 != 0;
          run.push_back(right ? plain[static_cast<size_t>(i - 90)] : 5);
        }
        client.Send(ProposalRequest(length, length, run));
        ASSERT_TRUE(client.Read().has_value());
        length = 90 + static_cast<int>(client.tokens().size());
      }
      EXPECT_TRUE(client.Drain().ok());
      EXPECT_EQ(client.tokens(), plain) << patience_us << " " << run_length;
    }
  }
  EXPECT_EQ(engine_->kv_blocks_used(), 0);
}

TEST_F(TinyModelServiceTest, DecodesToTheContextsEnd) {
  VerifierHarness verifier(engine_.get());
  const int max_model_len = engine_->info().max_model_len;
  const std::vector<int32_t> prompt(static_cast<size_t>(max_model_len - 20),
                                    100);
  v1::DecodeRequest open = OpenRequest(prompt, 20, 0);
  open.mutable_open()->set_ignore_eos(true);
  DecodeClient client(verifier.stub());
  client.Send(open);
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.tokens().size(), 20u);
  EXPECT_EQ(client.last().finish().reason(), v1::FINISH_REASON_LENGTH);
}

TEST_F(TinyModelServiceTest, TellsItsModelAndTokenizer) {
  VerifierHarness verifier(engine_.get());
  grpc::ClientContext context;
  const auto reader = verifier.stub()->GetModel(&context, {});
  v1::GetModelResponse message;
  ASSERT_TRUE(reader->Read(&message));
  const auto info = FromProto(message.model());
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->model_digest, engine_->info().model_digest);
  EXPECT_EQ(info->eos_ids, engine_->info().eos_ids);
  EXPECT_EQ(info->max_model_len, engine_->info().max_model_len);
  const std::string fingerprint = message.model().vocabulary_fingerprint();
  std::string bytes;
  while (reader->Read(&message)) bytes += message.tokenizer_chunk();
  EXPECT_TRUE(reader->Finish().ok());
  auto model = ParseTokenizer(bytes);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto tokenizer = Tokenizer::Create(*std::move(model));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->fingerprint(), fingerprint);
}

TEST_F(TinyModelServiceTest, MeasuresWhatAPassCosts) {
  const auto costs = MeasureStepCosts(engine_.get(), {1, 4, 8, 512});
  ASSERT_TRUE(costs.ok()) << costs.status();
  // 512 rows do not fit the model's context.
  ASSERT_EQ(costs->size(), 3u);
  const int context = std::min<int>(256, engine_->info().max_model_len / 2);
  for (const StepCost& cost : *costs) {
    EXPECT_GT(cost.duration, absl::ZeroDuration());
    EXPECT_EQ(cost.context_length, context);
  }
  EXPECT_EQ((*costs)[2].num_rows, 8);
  EXPECT_EQ(engine_->kv_blocks_used(), 0);
}

}  // namespace
}  // namespace specwire::verifier
