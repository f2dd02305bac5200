// SPDX-License-Identifier: Apache-2.0

// InspectService over a real engine with a tiny random model, and over one that
// has no model.

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/metrics/metrics.h"
#include "common/model/engine.h"
#include "common/rpc/convert.h"
#include "common/rpc/server.h"
#include "common/sampling/pipeline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_engine.h"
#include "tests/testing/greedy_text.h"
#include "tests/verifier_node/verifier_harness.h"
#include "verifier_node/inspect_service.h"

namespace specwire::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// InspectService beside the harness's own service.
class Inspector {
 public:
  Inspector(const Engine& engine, EngineThread* thread) {
    auto service = InspectServiceImpl::Create(engine, thread);
    EXPECT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
    auto server = RpcServer::Start({}, {service_.get()});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::InspectService::NewStub(MakeChannel(server_->address(), {}));
  }
  ~Inspector() { EXPECT_TRUE(server_->Shutdown(absl::Seconds(10)).ok()); }

  grpc::Status Ask(const v1::InspectAttentionRequest& request,
                   v1::InspectAttentionResponse* response) {
    grpc::ClientContext context;
    SetDeadline(&context);
    return stub_->InspectAttention(&context, request, response);
  }
  grpc::Status Ask(const v1::InspectNextTokenRequest& request,
                   v1::InspectNextTokenResponse* response) {
    grpc::ClientContext context;
    SetDeadline(&context);
    return stub_->InspectNextToken(&context, request, response);
  }
  grpc::Status Ask(const v1::InspectCacheRequest& request,
                   v1::InspectCacheResponse* response) {
    grpc::ClientContext context;
    SetDeadline(&context);
    return stub_->InspectCache(&context, request, response);
  }
  v1::InspectService::Stub* stub() { return stub_.get(); }

 private:
  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + kTestDeadline));
  }

  std::unique_ptr<InspectServiceImpl> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::InspectService::Stub> stub_;
};

v1::InspectText Ids(const std::vector<int32_t>& ids) {
  v1::InspectText text;
  text.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  return text;
}

std::vector<int32_t> SomeTokens(int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(20 + i * 31 % 290);
  return tokens;
}

class InspectServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    engine_ = LoadTinyEngine(SPECWIRE_TINY_MODEL);
    ASSERT_NE(engine_, nullptr);
    expected_ = LoadTinyEngine(SPECWIRE_TINY_MODEL);
    verifier_ = std::make_unique<VerifierHarness>(engine_.get());
    inspector_ = std::make_unique<Inspector>(*engine_, &verifier_->thread());
  }
  void TearDown() override {
    // Calls end with the thread.
    verifier_.reset();
    inspector_.reset();
    if (engine_ == nullptr) return;
    EXPECT_EQ(engine_->kv_blocks_used(), 0);
  }

  std::unique_ptr<Engine> engine_;
  // The same model, for what should come out.
  std::unique_ptr<Engine> expected_;
  std::unique_ptr<VerifierHarness> verifier_;
  std::unique_ptr<Inspector> inspector_;
};

TEST_F(InspectServiceTest, TellsTheEnginesAttentionWeights) {
  const std::vector<int32_t> tokens = SomeTokens(11);
  AttentionProbe probe = {.layer = 1};
  const auto kv = expected_->NewSequence();
  const ForwardRun run = {
      .kv = kv.get(), .tokens = tokens, .attention = &probe};
  ASSERT_TRUE(expected_->Forward({&run, 1}).ok());
  v1::InspectAttentionRequest request;
  *request.mutable_text() = Ids(tokens);
  request.set_layer(1);
  v1::InspectAttentionResponse response;
  const grpc::Status status = inspector_->Ask(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.num_layers(), 3);
  EXPECT_EQ(response.num_heads(), engine_->info().num_heads);
  ASSERT_EQ(response.heads_size(), response.num_heads());
  ASSERT_EQ(response.tokens_size(), 11);
  EXPECT_EQ(response.tokens(3).token_id(), tokens[3]);
  for (int head = 0; head < response.heads_size(); ++head) {
    EXPECT_EQ(response.heads(head).head(), head);
    std::vector<float> want;
    for (int row = 0; row < 11; ++row) {
      const auto from = probe.weights.begin() + (head * 11 + row) * 11;
      want.insert(want.end(), from, from + row + 1);
    }
    const auto& got = response.heads(head).weights();
    EXPECT_EQ(std::vector<float>(got.begin(), got.end()), want);
  }
  request.set_head(1);
  v1::InspectAttentionResponse one;
  ASSERT_TRUE(inspector_->Ask(request, &one).ok());
  ASSERT_EQ(one.heads_size(), 1);
  EXPECT_EQ(one.heads(0).SerializeAsString(),
            response.heads(1).SerializeAsString());
}

v1::InspectNextTokenRequest AllStages() {
  v1::InspectNextTokenRequest request;
  *request.mutable_prompt() = Ids(SomeTokens(9));
  *request.mutable_completion() = Ids({40, 41, 40, 42});
  v1::SamplingParams* const sampling = request.mutable_sampling();
  sampling->set_temperature(0.7f);
  sampling->set_top_k(12);
  sampling->set_top_p(0.9f);
  sampling->set_min_p(0.02f);
  sampling->set_repetition_penalty(1.3f);
  sampling->set_frequency_penalty(0.5f);
  sampling->set_presence_penalty(-0.4f);
  v1::LogitBias* const bias = sampling->add_logit_bias();
  bias->set_token_id(77);
  bias->set_bias(3);
  request.set_min_tokens(20);
  request.set_top(64);
  return request;
}

TEST_F(InspectServiceTest, TheLastStageIsWhatTokensAreDrawnFrom) {
  const v1::InspectNextTokenRequest request = AllStages();
  v1::InspectNextTokenResponse response;
  const grpc::Status status = inspector_->Ask(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.stages_size(), kNumPipelineStages);

  std::vector<int32_t> tokens = SomeTokens(9);
  tokens.insert(tokens.end(), {40, 41, 40, 42});
  const auto kv = expected_->NewSequence();
  const ForwardRun run = {.kv = kv.get(), .tokens = tokens, .num_logits = 1};
  const auto logits = expected_->Forward({&run, 1});
  ASSERT_TRUE(logits.ok());
  const auto sampling = FromProto(request.sampling(), 0);
  ASSERT_TRUE(sampling.ok());
  Pipeline pipeline(*sampling,
                    {.prompt_length = 9,
                     .min_tokens = 20,
                     .end_token_ids = engine_->info().eos_ids});
  const TokenDistribution& all =
      pipeline.Distribution(*logits, {.settled = tokens, .run = {}});
  const v1::PipelineStage& last = response.stages(kNumPipelineStages - 1);
  ASSERT_EQ(last.num_left(), static_cast<int>(all.token_ids.size()));
  ASSERT_EQ(last.top_size(), last.num_left());
  double before = 1;
  for (const v1::TokenProbability& entry : last.top()) {
    const auto it = std::find(
        all.token_ids.begin(), all.token_ids.end(), entry.token().token_id());
    ASSERT_NE(it, all.token_ids.end());
    EXPECT_EQ(
        entry.probability(),
        all.probabilities[static_cast<size_t>(it - all.token_ids.begin())]);
    EXPECT_LE(entry.probability(), before);
    before = entry.probability();
  }
}

TEST_F(InspectServiceTest, StagesShowEachSettingInPipelineOrder) {
  v1::InspectNextTokenRequest request = AllStages();
  v1::InspectNextTokenResponse response;
  ASSERT_TRUE(inspector_->Ask(request, &response).ok());
  // One that is not likely by itself.
  const int32_t biased = response.stages(0).top(20).token().token_id();
  request.mutable_sampling()->mutable_logit_bias(0)->set_token_id(biased);
  ASSERT_TRUE(inspector_->Ask(request, &response).ok());
  const auto kind = [&](int i) { return response.stages(i).kind(); };
  EXPECT_EQ(kind(0), v1::PIPELINE_STAGE_KIND_RAW);
  EXPECT_EQ(kind(1), v1::PIPELINE_STAGE_KIND_LOGIT_BIAS);
  EXPECT_EQ(kind(7), v1::PIPELINE_STAGE_KIND_MIN_P);
  EXPECT_EQ(kind(9), v1::PIPELINE_STAGE_KIND_TOP_P);
  for (const v1::PipelineStage& stage : response.stages()) {
    EXPECT_TRUE(stage.active()) << stage.kind();
  }
  const auto probability = [&](int stage, int32_t token) {
    for (const auto& entry : response.stages(stage).top()) {
      if (entry.token().token_id() == token) return entry.probability();
    }
    return 0.0;
  };
  EXPECT_GT(probability(1, biased), 2 * probability(0, biased));
  // EOS is masked.
  EXPECT_EQ(response.stages(2).num_left(), response.stages(1).num_left() - 1);
  EXPECT_EQ(response.stages(6).num_left(), response.stages(2).num_left());
  EXPECT_LT(response.stages(7).num_left(), response.stages(6).num_left());
  EXPECT_LE(response.stages(8).num_left(), 12);
  EXPECT_LE(response.stages(9).num_left(), response.stages(8).num_left());

  v1::InspectNextTokenRequest plain;
  *plain.mutable_prompt() = Ids(SomeTokens(9));
  v1::InspectNextTokenResponse same;
  ASSERT_TRUE(inspector_->Ask(plain, &same).ok());
  for (const v1::PipelineStage& stage : same.stages()) {
    EXPECT_EQ(stage.active(), stage.kind() == v1::PIPELINE_STAGE_KIND_RAW);
    EXPECT_EQ(stage.num_left(), 320);
    ASSERT_EQ(stage.top_size(), 16);
    EXPECT_EQ(stage.top(0).SerializeAsString(),
              same.stages(0).top(0).SerializeAsString());
  }
}

TEST_F(InspectServiceTest, CountsTheKeyRowsThatACacheSaves) {
  v1::InspectCacheRequest request;
  *request.mutable_prompt() = Ids(SomeTokens(10));
  request.set_num_tokens(5);
  v1::InspectCacheResponse response;
  const grpc::Status status = inspector_->Ask(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.num_layers(), 3);
  EXPECT_THAT(response.with_cache().key_rows(), ElementsAre(30, 3, 3, 3, 3));
  EXPECT_THAT(response.without_cache().key_rows(),
              ElementsAre(30, 33, 36, 39, 42));
  std::vector<int32_t> generated;
  for (const auto& token : response.tokens()) {
    generated.push_back(token.token_id());
  }
  EXPECT_EQ(generated, GreedyText(expected_.get(), SomeTokens(10), 5));
}

TEST_F(InspectServiceTest, RefusesWhatIsTooLargeOrNotThere) {
  v1::InspectAttentionResponse attention;
  v1::InspectNextTokenResponse next;
  v1::InspectCacheResponse cache;
  const auto expect = [](const grpc::Status& status, const char* message) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(message));
  };
  v1::InspectAttentionRequest request;
  expect(inspector_->Ask(request, &attention), "text: has 0 tokens");
  *request.mutable_text() = Ids(SomeTokens(129));
  expect(inspector_->Ask(request, &attention), "text: has 129 tokens");
  *request.mutable_text() = Ids({320});
  expect(inspector_->Ask(request, &attention), "text.token_ids: 320");
  request.mutable_text()->set_text(std::string(8193, 'a'));
  expect(inspector_->Ask(request, &attention), "text.text: has 8193 bytes");
  *request.mutable_text() = Ids({7});
  request.set_layer(3);
  expect(inspector_->Ask(request, &attention), "layer: 3 is not");
  request.set_layer(0);
  request.set_head(-1);
  expect(inspector_->Ask(request, &attention), "head: -1 is not");

  v1::InspectNextTokenRequest stages;
  *stages.mutable_prompt() = Ids(SomeTokens(100));
  *stages.mutable_completion() = Ids(SomeTokens(29));
  expect(inspector_->Ask(stages, &next), "has 129 tokens");
  *stages.mutable_completion() = Ids({});
  stages.set_top(65);
  expect(inspector_->Ask(stages, &next), "top: 65");
  stages.set_top(1);
  stages.mutable_sampling()->set_top_p(0);
  expect(inspector_->Ask(stages, &next), "top_p");

  v1::InspectCacheRequest work;
  *work.mutable_prompt() = Ids({7});
  expect(inspector_->Ask(work, &cache), "num_tokens: 0");
  work.set_num_tokens(33);
  expect(inspector_->Ask(work, &cache), "num_tokens: 33");
}

TEST_F(InspectServiceTest, OthersGetTheSameText) {
  constexpr int kTokens = 100;
  const std::vector<int32_t> prompt = SomeTokens(30);
  const std::vector<int32_t> expected =
      GreedyText(expected_.get(), prompt, kTokens);
  v1::DecodeRequest open = OpenRequest(prompt, kTokens, 0);
  open.mutable_open()->set_ignore_eos(true);
  DecodeClient client(verifier_->stub());
  ASSERT_TRUE(client.Send(open));
  std::thread looker([&] {
    for (int i = 0; i < 5; ++i) {
      v1::InspectAttentionRequest attention;
      *attention.mutable_text() = Ids(SomeTokens(100));
      v1::InspectAttentionResponse weights;
      EXPECT_TRUE(inspector_->Ask(attention, &weights).ok());
      v1::InspectCacheRequest work;
      *work.mutable_prompt() = Ids(SomeTokens(50));
      work.set_num_tokens(10);
      v1::InspectCacheResponse cache;
      EXPECT_TRUE(inspector_->Ask(work, &cache).ok());
      v1::InspectNextTokenResponse next;
      EXPECT_TRUE(inspector_->Ask(AllStages(), &next).ok());
    }
  });
  EXPECT_TRUE(client.Drain().ok());
  looker.join();
  EXPECT_EQ(client.tokens(), expected);
}

// An engine that can be held up, and that has no attention.
class FakeInspectTest : public testing::Test {
 protected:
  explicit FakeInspectTest(FakeEngineOptions options = {}) : engine_(options) {}

  v1::InspectCacheRequest Work() {
    v1::InspectCacheRequest request;
    *request.mutable_prompt() = Ids({10, 11, 12});
    request.set_num_tokens(4);
    return request;
  }

  FakeEngine engine_;
};

TEST_F(FakeInspectTest, OneAtATime) {
  VerifierHarness verifier(&engine_);
  Inspector inspector(engine_, &verifier.thread());
  engine_.Pause();
  grpc::Status first;
  std::thread caller([&] {
    v1::InspectCacheResponse response;
    first = inspector.Ask(Work(), &response);
  });
  ASSERT_TRUE(engine_.WaitUntilPaused());
  grpc::Status second;
  std::thread other([&] {
    v1::InspectCacheResponse response;
    second = inspector.Ask(Work(), &response);
  });
  ASSERT_TRUE(
      Eventually([&] { return verifier.thread().num_sequences() == 2; }));
  engine_.Resume();
  caller.join();
  other.join();
  EXPECT_TRUE(first.ok()) << first.error_message();
  EXPECT_EQ(second.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(
      Eventually([&] { return verifier.thread().num_sequences() == 0; }));
}

TEST_F(FakeInspectTest, EndsWhenItsCallerGoes) {
  VerifierHarness verifier(&engine_);
  Inspector inspector(engine_, &verifier.thread());
  engine_.Pause();
  grpc::ClientContext context;
  grpc::Status status;
  std::thread caller([&] {
    v1::InspectCacheResponse response;
    status = inspector.stub()->InspectCache(&context, Work(), &response);
  });
  ASSERT_TRUE(engine_.WaitUntilPaused());
  context.TryCancel();
  caller.join();
  engine_.Resume();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] {
    return verifier.thread().num_sequences() == 0 &&
           engine_.kv_blocks_used() == 0;
  }));
}

TEST_F(FakeInspectTest, EndsWithTheThread) {
  auto verifier = std::make_unique<VerifierHarness>(&engine_);
  Inspector inspector(engine_, &verifier->thread());
  engine_.Pause();
  grpc::Status status;
  std::thread caller([&] {
    v1::InspectCacheResponse response;
    status = inspector.Ask(Work(), &response);
  });
  ASSERT_TRUE(engine_.WaitUntilPaused());
  std::thread stopper([&] { verifier->thread().Stop(); });
  engine_.Resume();
  stopper.join();
  caller.join();
  EXPECT_TRUE(status.ok() ||
              status.error_code() == grpc::StatusCode::UNAVAILABLE)
      << status.error_message();
}

TEST_F(FakeInspectTest, SaysThatAnEngineHasNoAttentionOrFails) {
  VerifierHarness verifier(&engine_);
  Inspector inspector(engine_, &verifier.thread());
  v1::InspectAttentionRequest request;
  *request.mutable_text() = Ids({10});
  v1::InspectAttentionResponse attention;
  EXPECT_EQ(inspector.Ask(request, &attention).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  for (const int32_t token : {FakeEngine::kFailingToken,
                              FakeEngine::kThrowingToken,
                              FakeEngine::kNanToken}) {
    v1::InspectCacheRequest work = Work();
    *work.mutable_prompt() = Ids({token});
    v1::InspectCacheResponse cache;
    EXPECT_FALSE(inspector.Ask(work, &cache).ok()) << token;
  }
  // It goes on.
  v1::InspectCacheResponse cache;
  EXPECT_TRUE(inspector.Ask(Work(), &cache).ok());
}

class FullCacheInspectTest : public FakeInspectTest {
 protected:
  FullCacheInspectTest()
      : FakeInspectTest(
            {.num_blocks = 8, .pass_delay = absl::Microseconds(500)}) {}
};

// The cache holds 128 tokens: what is served comes first.
TEST_F(FullCacheInspectTest, GivesWayToWhatIsServed) {
  VerifierHarness verifier(&engine_);
  Inspector inspector(engine_, &verifier.thread());
  const std::vector<int32_t> prompt = {10, 11, 12, 13};
  v1::DecodeRequest open = OpenRequest(prompt, 124, 0);
  open.mutable_open()->set_ignore_eos(true);
  DecodeClient client(verifier.stub());
  ASSERT_TRUE(client.Send(open));
  std::thread looker([&] {
    for (int i = 0; i < 40; ++i) {
      v1::InspectCacheRequest work;
      *work.mutable_prompt() = Ids(std::vector<int32_t>(60, 20));
      work.set_num_tokens(32);
      v1::InspectCacheResponse cache;
      const grpc::Status status = inspector.Ask(work, &cache);
      EXPECT_TRUE(status.ok() ||
                  status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED)
          << status.error_message();
    }
  });
  const grpc::Status status = client.Drain();
  looker.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
  std::vector<int32_t> text = engine_.Continue(prompt, 124);
  EXPECT_EQ(client.tokens(),
            std::vector<int32_t>(text.end() - 124, text.end()));
}

}  // namespace
}  // namespace specwire::verifier
