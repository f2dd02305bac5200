// SPDX-License-Identifier: Apache-2.0

// OpenAI's routes over a coordinator with fake nodes: the same request over
// gRPC and over HTTP, whole and streamed.

#include "coordinator/http/openai_routes.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/http/http_cluster.h"

namespace specwire::coordinator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

// The text of choice `index` in the chunks of a stream.
std::string TextOf(const HttpAnswer& answer, int index = 0) {
  std::string text;
  for (const std::string& event : answer.events) {
    if (event == "[DONE]") continue;
    const Json chunk = Json::parse(event);
    for (const Json& choice : chunk["choices"]) {
      if (choice["index"] != index) continue;
      if (choice.contains("text")) {
        text += choice["text"];
      } else if (choice["delta"].contains("content")) {
        text += choice["delta"]["content"];
      }
    }
  }
  return text;
}

class OpenAiRoutesTest : public testing::Test {
 protected:
  HttpAnswer Complete(Json body) {
    return cluster_.Post("/v1/completions", body.dump());
  }

  HttpCluster cluster_;
};

TEST_F(OpenAiRoutesTest, TheSameTextAsOverGrpcWholeAndStreamed) {
  for (const double temperature : {0.0, 1.0}) {
    for (const bool speculate : {false, true}) {
      v1::GenerateRequest direct;
      direct.set_text("once upon");
      direct.mutable_sampling()->set_seed(11);
      direct.mutable_sampling()->set_temperature(
          static_cast<float>(temperature));
      direct.mutable_stop()->set_max_tokens(60);
      direct.mutable_speculation()->set_enabled(speculate);
      const GenerateResult expected = cluster_->Generate(direct);
      Json body = {{"prompt", "once upon"},
                   {"seed", 11},
                   {"temperature", temperature},
                   {"max_tokens", 60},
                   {"speculation", {{"enabled", speculate}}}};
      const HttpAnswer whole = Complete(body);
      ASSERT_EQ(whole.status, 200) << whole.body;
      EXPECT_EQ(whole.json["choices"][0]["text"], expected.text);
      EXPECT_EQ(whole.json["seed"], 11);
      EXPECT_EQ(whole.json["system_fingerprint"],
                expected.started.model_digest());
      body["stream"] = true;
      const HttpAnswer streamed = Complete(body);
      ASSERT_EQ(streamed.status, 200) << streamed.body;
      EXPECT_EQ(streamed.content_type, "text/event-stream");
      EXPECT_EQ(TextOf(streamed), expected.text);
      EXPECT_EQ(streamed.events.back(), "[DONE]");
    }
  }
}

TEST_F(OpenAiRoutesTest, WholeAnswersHaveOpenAisShape) {
  const HttpAnswer answer =
      Complete({{"prompt", "ab"}, {"max_tokens", 8}, {"temperature", 0}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json["object"], "text_completion");
  EXPECT_THAT(answer.json["id"].get<std::string>(),
              testing::StartsWith("cmpl-"));
  EXPECT_EQ(answer.json["model"], "fake");
  EXPECT_EQ(answer.json["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(answer.json["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(answer.json["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(answer.json["usage"]["completion_tokens"], 8);
  EXPECT_EQ(answer.json["usage"]["total_tokens"], 10);
  EXPECT_TRUE(
      answer.json["usage"]["prompt_tokens_details"].contains("cached_tokens"));
  const Json& figures = answer.json["metrics"]["speculative_decoding"];
  int64_t accepted = 0;
  for (size_t i = 0; i < figures["acceptance_histogram"].size(); ++i) {
    accepted += static_cast<int64_t>(i) *
                figures["acceptance_histogram"][i].get<int64_t>();
  }
  EXPECT_EQ(figures["num_accepted_draft_tokens"], accepted);
  EXPECT_GT(answer.json["metrics"]["time_to_first_token_ms"], 0);
}

TEST_F(OpenAiRoutesTest, ChatAnswersAreTheTemplatesCompletion) {
  const Json messages = {{{"role", "user"}, {"content", "hi <b>there</b>"}}};
  v1::GenerateRequest direct;
  v1::ChatMessage* message = direct.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("hi <b>there</b>");
  direct.mutable_sampling()->set_seed(3);
  direct.mutable_stop()->set_max_tokens(30);
  const GenerateResult expected = cluster_->Generate(direct);
  Json body = {{"messages", messages}, {"seed", 3}, {"max_tokens", 30}};
  const HttpAnswer whole = cluster_.Post("/v1/chat/completions", body.dump());
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(whole.json["object"], "chat.completion");
  EXPECT_EQ(whole.json["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(whole.json["choices"][0]["message"]["content"], expected.text);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const HttpAnswer streamed =
      cluster_.Post("/v1/chat/completions", body.dump());
  EXPECT_EQ(TextOf(streamed), expected.text);
  const Json first = Json::parse(streamed.events.front());
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(first["usage"].is_null());
  const Json last = Json::parse(streamed.events[streamed.events.size() - 2]);
  EXPECT_TRUE(last["choices"].empty());
  EXPECT_EQ(last["usage"], whole.json["usage"]);
  EXPECT_TRUE(last["metrics"].contains("speculative_decoding"));
}

TEST_F(OpenAiRoutesTest, SeveralChoicesKeepTheirOrder) {
  Json body = {{"prompt", "ab"}, {"seed", 5}, {"max_tokens", 20}, {"n", 3}};
  const HttpAnswer whole = Complete(body);
  ASSERT_EQ(whole.json["choices"].size(), 3u) << whole.body;
  EXPECT_EQ(whole.json["usage"]["completion_tokens"], 60);
  body["stream"] = true;
  const HttpAnswer streamed = Complete(body);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(whole.json["choices"][static_cast<size_t>(i)]["index"], i);
    EXPECT_EQ(whole.json["choices"][static_cast<size_t>(i)]["text"],
              TextOf(streamed, i));
  }
}

TEST_F(OpenAiRoutesTest, StopTextsEndAndAreTold) {
  const HttpAnswer free =
      Complete({{"prompt", "ab"}, {"temperature", 0}, {"max_tokens", 20}});
  const std::string text = free.json["choices"][0]["text"];
  // Of whole characters.
  size_t at = 3;
  while (at + 2 < text.size() && (text[at] < 0 || text[at + 1] < 0)) ++at;
  const std::string stop = text.substr(at, 2);
  const HttpAnswer answer = Complete({{"prompt", "ab"},
                                      {"temperature", 0},
                                      {"max_tokens", 20},
                                      {"stop", {"never ever", stop}}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer.json["choices"][0]["stop_reason"], stop);
  EXPECT_EQ(answer.json["choices"][0]["text"], text.substr(0, text.find(stop)));
}

TEST_F(OpenAiRoutesTest, ErrorsHaveOpenAisShape) {
  HttpAnswer answer = Complete({{"prompt", "a"}, {"model", "none"}});
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.json["error"]["code"], "model_not_found");
  answer = Complete({{"prompt", "a"}, {"max_tokens", 0}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json["error"]["param"], "max_tokens");
  EXPECT_EQ(answer.json["error"]["type"], "invalid_request_error");
  answer = Complete({{"prompt", "a"}, {"max_tokens", 1000000}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json["error"]["code"], "context_length_exceeded");
  answer = Complete({{"prompt", "a"}, {"stream", true}, {"top_p", 7}});
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_EQ(answer.json["error"]["param"], "top_p");
  EXPECT_EQ(cluster_.Post("/v1/completions", "not json").status, 400);
  answer = Complete({{"prompt", {-1}}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json["error"]["param"], "prompt");
  answer = Complete({{"prompt", std::string(1 << 20, 'a')}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(answer.json["error"]["param"], "prompt");
}

TEST_F(OpenAiRoutesTest, ModelsAreListedAndFound) {
  const HttpAnswer list = cluster_.Get("/v1/models");
  ASSERT_EQ(list.status, 200) << list.body;
  EXPECT_EQ(list.json["object"], "list");
  EXPECT_EQ(list.json["data"][0]["id"], "fake");
  EXPECT_EQ(cluster_.Get("/v1/models/fake").json, list.json["data"][0]);
  const HttpAnswer none = cluster_.Get("/v1/models/none");
  EXPECT_EQ(none.status, 404);
  EXPECT_EQ(none.json["error"]["code"], "model_not_found");
  EXPECT_EQ(none.json["error"]["message"],
            "model: 'none' is not served; served: fake");
}

TEST_F(OpenAiRoutesTest, AClientThatGoesEndsItsRequest) {
  cluster_.PostAndLeave(
      "/v1/completions",
      R"({"prompt": "a", "ignore_eos": true, "stream": true})");
  EXPECT_TRUE(
      Eventually([&] { return cluster_->coordinator()->num_requests() == 0; }));
}

TEST(OpenAiMetricsTest, CanBeLeftOut) {
  HttpCluster cluster([](CoordinatorOptions* options) {
    options->per_request_spec_decode_metrics = SpecDecodeMetrics::kNone;
  });
  const HttpAnswer answer =
      cluster.Post("/v1/completions", R"({"prompt": "a", "max_tokens": 3})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_FALSE(answer.json.contains("metrics"));
}

TEST(OpenAiMetricsTest, CanTellOfEachStep) {
  HttpCluster cluster([](CoordinatorOptions* options) {
    options->per_request_spec_decode_metrics = SpecDecodeMetrics::kDetailed;
  });
  const HttpAnswer answer =
      cluster.Post("/v1/completions",
                   R"({"prompt": "ab", "max_tokens": 80, "n": 2,
          "speculation": {"patience_us": -1, "max_draft_tokens": 4}})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json& figures = answer.json["metrics"]["speculative_decoding"];
  const auto sum = [](const Json& list) {
    int64_t total = 0;
    for (const Json& number : list) total += number.get<int64_t>();
    return total;
  };
  EXPECT_EQ(figures["per_step_drafted"].size(), figures["num_spec_steps"]);
  EXPECT_EQ(sum(figures["per_step_drafted"]), figures["num_draft_tokens"]);
  EXPECT_EQ(sum(figures["per_step_accepted"]),
            figures["num_accepted_draft_tokens"]);
  int64_t steps = 0;
  for (const Json& histogram :
       figures["acceptance_histogram_by_draft_length"]) {
    steps += sum(histogram);
  }
  EXPECT_EQ(steps, figures["num_spec_steps"]);
  EXPECT_GT(steps, 0);
}

TEST(OpenAiOverloadTest, SaysWhenToComeAgain) {
  FakeVerifierOptions slow;
  slow.step_time = absl::Milliseconds(50);
  HttpCluster cluster(
      [](CoordinatorOptions* options) { options->max_concurrent_requests = 1; },
      slow);
  v1::GenerateRequest request;
  request.set_text("a");
  request.mutable_stop()->set_max_tokens(2000);
  request.mutable_stop()->set_ignore_eos(true);
  HttpAnswer refused;
  cluster->Generate(request, [&](const v1::GenerateDelta&) {
    refused = cluster.Post("/v1/completions", R"({"prompt": "a"})");
    return false;
  });
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.find("Retry-After")->second, "1");
  EXPECT_EQ(refused.json["error"]["type"], "rate_limit_error");
}

}  // namespace
}  // namespace specwire::coordinator
