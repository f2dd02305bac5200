// SPDX-License-Identifier: Apache-2.0

// The methods beside Generate, health, HTTP, and shutdown.

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "coordinator/coordinator.h"
#include "coordinator/options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"
#include "tests/testing/health.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {
namespace {

using ::testing::HasSubstr;

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() : cluster_(Options()) {}
  static CoordinatorOptions Options() {
    CoordinatorOptions options;
    options.http = "127.0.0.1:0";
    return options;
  }
  void Serve(const FakeVerifierOptions& options = {}) {
    cluster_.AddVerifier(options);
    ASSERT_TRUE(cluster_.WaitServing(1, 0));
  }
  absl::Status Tokenize(const v1::TokenizeRequest& request,
                        v1::TokenizeResponse* response) {
    grpc::ClientContext context;
    return FromGrpcStatus(
        cluster_.generation()->Tokenize(&context, request, response));
  }
  absl::Status Detokenize(const v1::DetokenizeRequest& request,
                          v1::DetokenizeResponse* response) {
    grpc::ClientContext context;
    return FromGrpcStatus(
        cluster_.generation()->Detokenize(&context, request, response));
  }
  absl::Status RenderChat(const v1::RenderChatRequest& request,
                          v1::RenderChatResponse* response) {
    grpc::ClientContext context;
    return FromGrpcStatus(
        cluster_.generation()->RenderChat(&context, request, response));
  }

  InProcessCluster cluster_;
};

TEST_F(ServiceTest, TokenizeRecognisesSpecialTokensUnlessPlain) {
  Serve();
  v1::TokenizeRequest request;
  request.set_text("a<|im_end|>");
  v1::TokenizeResponse response;
  ASSERT_TRUE(Tokenize(request, &response).ok());
  ASSERT_EQ(response.token_ids_size(), 2);
  EXPECT_EQ(response.token_ids(1), FakeModel::kImEnd);
  request.set_plain(true);
  ASSERT_TRUE(Tokenize(request, &response).ok());
  EXPECT_EQ(response.token_ids_size(), 11);
}

TEST_F(ServiceTest, TokenizeRefusesLongTextAndUnknownModel) {
  Serve();
  v1::TokenizeRequest request;
  request.set_text(std::string((4 << 20) + 1, 'a'));
  v1::TokenizeResponse response;
  absl::Status status = Tokenize(request, &response);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("4194304"));
  request.set_text("a");
  request.set_model("unknown");
  EXPECT_EQ(Tokenize(request, &response).code(), absl::StatusCode::kNotFound);
}

TEST_F(ServiceTest, DetokenizeReplacesBrokenCharacters) {
  Serve();
  v1::DetokenizeRequest request;
  for (const int32_t id : {int32_t{'a'}, 0xc3, FakeModel::kImEnd}) {
    request.add_token_ids(id);
  }
  v1::DetokenizeResponse response;
  ASSERT_TRUE(Detokenize(request, &response).ok());
  EXPECT_EQ(response.text(), "a\xef\xbf\xbd<|im_end|>");
  request.set_skip_special_tokens(true);
  ASSERT_TRUE(Detokenize(request, &response).ok());
  EXPECT_EQ(response.text(), "a\xef\xbf\xbd");
  request.add_token_ids(260);
  const absl::Status status = Detokenize(request, &response);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("token_ids[3]"));
}

TEST_F(ServiceTest, RenderChatGivesTextAndIds) {
  Serve();
  v1::RenderChatRequest request;
  v1::ChatMessage* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("hi");
  v1::RenderChatResponse response;
  ASSERT_TRUE(RenderChat(request, &response).ok());
  EXPECT_EQ(response.text(),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(response.token_ids(0), FakeModel::kImStart);
  request.mutable_chat()->set_add_generation_prompt(false);
  ASSERT_TRUE(RenderChat(request, &response).ok());
  EXPECT_EQ(response.text(), "<|im_start|>user\nhi<|im_end|>\n");
  request.clear_chat();
  EXPECT_EQ(RenderChat(request, &response).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ServiceTest, UnaryMethodsAreUnavailableWithoutVerifier) {
  v1::TokenizeRequest request;
  v1::TokenizeResponse response;
  EXPECT_EQ(Tokenize(request, &response).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ServiceTest, ListModelsCountsNodes) {
  grpc::ClientContext before;
  v1::ListModelsResponse response;
  ASSERT_TRUE(cluster_.generation()
                  ->ListModels(&before, v1::ListModelsRequest(), &response)
                  .ok());
  EXPECT_EQ(response.models_size(), 0);
  cluster_.AddVerifier();
  cluster_.AddVerifier({.name = "verifier-2"});
  cluster_.AddDrafter();
  ASSERT_TRUE(cluster_.WaitServing(2, 1));
  grpc::ClientContext after;
  ASSERT_TRUE(cluster_.generation()
                  ->ListModels(&after, v1::ListModelsRequest(), &response)
                  .ok());
  ASSERT_EQ(response.models_size(), 1);
  EXPECT_EQ(response.models(0).model().name(), "fake");
  EXPECT_EQ(response.models(0).num_verifiers(), 2);
  EXPECT_EQ(response.models(0).num_draft_nodes(), 1);
}

TEST_F(ServiceTest, ScoreNamesWhatIsWrong) {
  Serve();
  const auto score = [this](const v1::ScoreRequest& request) {
    grpc::ClientContext context;
    v1::ScoreResponse response;
    return cluster_.generation()->Score(&context, request, &response);
  };
  const auto expect_refused = [&](const v1::ScoreRequest& request,
                                  const std::string& field) {
    const grpc::Status status = score(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(field));
  };
  v1::ScoreRequest request;
  expect_refused(request, "input: missing");
  request.set_text("");
  expect_refused(request, "input: has 0 tokens");
  request.set_text("a");
  expect_refused(request, "input: has 1 tokens");
  request.set_text(std::string((size_t{4} << 20) + 1, 'a'));
  expect_refused(request, "input.text");
  request.set_text(std::string(300000, 'a'));
  expect_refused(request, "262144");
  // The fake model's context has 4096 tokens.
  request.set_text(std::string(4097, 'a'));
  expect_refused(request, "window: the text has 4097 tokens");
  request.set_window(4097);
  expect_refused(request, "window: 4097");
  request.set_window(1);
  expect_refused(request, "window: 1 ");
  request.set_window(-2);
  expect_refused(request, "window: -2");
  request.set_window(10);
  request.set_stride(11);
  expect_refused(request, "stride: 11");
  request.set_stride(-1);
  expect_refused(request, "stride: -1");
  request.set_window(0);
  request.set_stride(5);
  expect_refused(request, "stride: 5 needs a window");
  request.set_stride(0);
  request.set_text(std::string(100000, 'a'));
  request.set_window(4096);
  request.set_stride(1);
  expect_refused(request, "stride: 1 makes windows");
  request.set_stride(0);
  request.set_top(21);
  expect_refused(request, "top: 21");
  request.set_top(-1);
  expect_refused(request, "top: -1");
  request.set_top(20);
  expect_refused(request, "top: 20 candidates");
  request = v1::ScoreRequest();
  request.mutable_token_ids()->add_ids(5);
  request.mutable_token_ids()->add_ids(260);
  expect_refused(request, "input.token_ids[1]: 260");
  request.set_model("other");
  EXPECT_EQ(score(request).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServiceTest, HttpTellsHealthAndMetrics) {
  Serve();
  httplib::Client http(
      absl::StrCat("http://", cluster_.coordinator()->http_address()));
  const httplib::Result health = http.Get("/health");
  ASSERT_TRUE(health);
  EXPECT_EQ(health->status, 200);
  EXPECT_THAT(health->body, HasSubstr("\"status\":\"serving\""));
  EXPECT_THAT(health->body, HasSubstr("\"verifiers\":1"));
  EXPECT_THAT(health->body, HasSubstr("\"draft_nodes\":0"));
  EXPECT_EQ(http.Get("/ready")->status, 200);
  const httplib::Result metrics = http.Get("/metrics");
  ASSERT_TRUE(metrics);
  EXPECT_THAT(metrics->body, HasSubstr("specwire_nodes{"));
  EXPECT_THAT(metrics->body, HasSubstr("specwire_build_info{"));
}

TEST_F(ServiceTest, WithoutAVerifierItIsHealthyAndNotReady) {
  httplib::Client http(
      absl::StrCat("http://", cluster_.coordinator()->http_address()));
  EXPECT_EQ(http.Get("/health")->status, 200);
  const httplib::Result ready = http.Get("/ready");
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->status, 503);
  EXPECT_THAT(ready->body, HasSubstr("\"status\":\"no verifier\""));
}

TEST_F(ServiceTest, HealthIsServing) {
  EXPECT_EQ(CheckHealth(MakeChannel(cluster_.coordinator()->address())),
            kHealthServing);
}

TEST_F(ServiceTest, ShutdownLetsRequestsEndWithinTheGrace) {
  FakeVerifierOptions options;
  options.step_time = absl::Milliseconds(2);
  Serve(options);
  std::thread stopper;
  const GenerateResult result = cluster_.Generate(
      GreedyRequest("hello", 100), [&](const v1::GenerateDelta&) {
        if (!stopper.joinable()) {
          stopper = std::thread([this] {
            EXPECT_TRUE(
                cluster_.coordinator()->Shutdown(absl::Seconds(10)).ok());
          });
        }
        return true;
      });
  stopper.join();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.token_ids.size(), 100u);
}

TEST_F(ServiceTest, ShutdownRefusesNewAndEndsOldRequests) {
  FakeVerifierOptions options;
  options.step_time = absl::Milliseconds(2);
  Serve(options);
  std::thread stopper;
  absl::Status refused;
  const GenerateResult result = cluster_.Generate(
      GreedyRequest("hello", 4000), [&](const v1::GenerateDelta&) {
        if (stopper.joinable()) return true;
        stopper = std::thread([this] {
          EXPECT_TRUE(cluster_.coordinator()->Shutdown(absl::Seconds(1)).ok());
        });
        EXPECT_TRUE(Eventually([this] {
          return CheckHealth(MakeChannel(cluster_.coordinator()->address())) ==
                 kHealthNotServing;
        }));
        refused = cluster_.Generate(GreedyRequest("hello", 5)).status;
        return true;
      });
  stopper.join();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("shutting down"));
  EXPECT_EQ(result.fault, "");
  EXPECT_GT(result.token_ids.size(), 10u);
}

TEST(CoordinatorTest, TakenPortIsOneClearError) {
  CoordinatorOptions options;
  options.listen = "127.0.0.1:0";
  const auto first = Coordinator::Start(options);
  ASSERT_TRUE(first.ok());
  options.listen = (*first)->address();
  const absl::Status status = Coordinator::Start(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cannot listen on " + options.listen));
}

TEST(CoordinatorTest, RefusesBadOptionsByName) {
  struct Case {
    const char* name;
    void (*spoil)(CoordinatorOptions*);
  };
  const Case cases[] = {
      {"listen", [](CoordinatorOptions* o) { o->listen = "no address"; }},
      {"http", [](CoordinatorOptions* o) { o->http = "no address"; }},
      {"run_length",
       [](CoordinatorOptions* o) { o->speculation.run_length = 0; }},
      {"run_length",
       [](CoordinatorOptions* o) { o->speculation.run_length = 33; }},
      {"window", [](CoordinatorOptions* o) { o->speculation.window = 3; }},
      {"window", [](CoordinatorOptions* o) { o->speculation.window = 257; }},
      {"patience_us",
       [](CoordinatorOptions* o) {
         o->speculation.patience = absl::Microseconds(-2);
       }},
      {"drafter_deadline",
       [](CoordinatorOptions* o) {
         o->drafter_deadline = absl::ZeroDuration();
       }},
      {"max_requests",
       [](CoordinatorOptions* o) { o->max_concurrent_requests = 0; }},
      {"credit", [](CoordinatorOptions* o) { o->credit = 0; }},
      {"workers", [](CoordinatorOptions* o) { o->num_workers = 0; }},
      {"grace", [](CoordinatorOptions* o) { o->grace = -absl::Seconds(1); }},
      {"max_silence",
       [](CoordinatorOptions* o) { o->max_silence = o->report_interval; }},
  };
  for (const Case& c : cases) {
    CoordinatorOptions options;
    c.spoil(&options);
    const absl::Status status = ValidateOptions(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.name));
  }
  EXPECT_TRUE(ValidateOptions(CoordinatorOptions()).ok());
}

}  // namespace
}  // namespace specwire::coordinator
