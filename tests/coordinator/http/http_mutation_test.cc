// SPDX-License-Identifier: Apache-2.0

// JSON that is nearly a request, much of it.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/http/json_input.h"
#include "coordinator/http/openai_request.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/coordinator/http/http_cluster.h"
#include "tests/testing/mutator.h"

namespace specwire::coordinator {
namespace {

using Json = nlohmann::json;

// Few tokens each, unless a change makes them more.
constexpr char kCompletion[] = R"({"model": "fake", "prompt": "a b",
    "max_tokens": 4, "temperature": 0.5, "top_p": 0.25, "top_k": 3,
    "min_p": 0.125, "n": 2, "seed": 7, "stop": ["xyz", "b"],
    "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.5,
    "logit_bias": {"3": -100, "4": 2.5}, "min_tokens": 1, "ignore_eos": true,
    "stop_token_ids": [8, 9], "skip_special_tokens": false, "logprobs": 2,
    "echo": true, "priority": 4, "cache_salt": "t", "stream": true,
    "stream_options": {"include_usage": true},
    "speculation": {"enabled": true, "max_draft_tokens": 6}})";
constexpr char kShortCompletion[] =
    R"({"prompt": [5, 6, 200], "max_tokens": 2})";
constexpr char kChat[] = R"({"messages": [
    {"role": "system", "content": "be\u0000\ud83d\ude00"},
    {"role": "user", "content": [{"type": "text", "text": "h\u00e9"}]}],
    "max_completion_tokens": 3, "logprobs": true, "top_logprobs": 2,
    "tools": [], "response_format": {"type": "text"}, "tool_choice": "none"})";
constexpr char kGenerate[] = R"({"tokenIds": {"ids": [1, 5]},
    "sampling": {"seed": "7", "temperature": 0.5, "logitBias":
    [{"tokenId": 3, "bias": 1.5}]}, "stop": {"maxTokens": 3, "stop": ["a"]},
    "logprobs": 1, "promptLogprobs": 1, "trace": true, "cacheSalt": "dA==",
    "resumeTokenIds": [4], "speculation": {"patienceUs": "500", "window": 8}})";
constexpr char kText[] = R"({"text": "ab"})";
constexpr char kNode[] = R"({"node": "nobody", "graceMs": "500"})";
constexpr char kInspect[] = R"({"prompt": {"text": "a"}, "top": 3,
    "completion": {"tokenIds": {"ids": [1]}}, "sampling": {"topK": 2}})";

std::vector<std::string> Examples() {
  return {
      kCompletion, kShortCompletion, kChat, kGenerate, kText, kNode, kInspect};
}

std::vector<std::string> Words() {
  return {"{",
          "}",
          "[",
          "]",
          "\"",
          ":",
          ",",
          "\\",
          "\\ud800",
          "\\u0000",
          "\xc3\x28",
          "\xed\xa0\x80",
          "null",
          "true",
          "NaN",
          "\"NaN\"",
          "-",
          "e9",
          "0",
          "-1",
          "1e400",
          "2147483648",
          "-2147483649",
          "9223372036854775808",
          "-9223372036854775809",
          "0.1",
          "\"text\":",
          "\"n\": ",
          "\"max_tokens\": ",
          "\"logprobs\": ",
          "{\"@type\": 1}",
          "{\"prompt\": {}}",
          std::string(40, '['),
          std::string(200, '9')};
}

// Changes a value somewhere in it and leaves it JSON.
void ChangeValue(Mutator* mutator, Json* json) {
  Json* at = json;
  while (at->is_structured() && !at->empty() && mutator->Below(4) != 0) {
    auto child = at->begin();
    std::advance(child, mutator->Below(at->size()));
    at = &*child;
  }
  static const std::vector<Json> values = {nullptr,
                                           true,
                                           false,
                                           0,
                                           1,
                                           -1,
                                           2.5,
                                           1e300,
                                           -1e-300,
                                           3e9,
                                           INT64_MAX,
                                           INT64_MIN,
                                           UINT64_MAX,
                                           "",
                                           "a",
                                           "\xf0\x9f\x98\x80",
                                           "-5",
                                           "fake",
                                           "NaN",
                                           "Infinity",
                                           std::string(5000, 'x'),
                                           Json::array(),
                                           Json::object(),
                                           Json::array({1, "a", nullptr}),
                                           Json::array({Json::array()}),
                                           {{"text", "a"}},
                                           {{"type", "text"}},
                                           std::vector<int>(5000, 7)};
  if (at->is_object() && mutator->Below(3) == 0) {
    // Fields of one example into another.
    const Json other = Json::parse(mutator->Pick(Examples()));
    at->update(other);
    return;
  }
  *at = mutator->Pick(values);
}

std::string NextBody(const std::vector<std::string>& examples,
                     Mutator* mutator) {
  if (mutator->Below(2) == 0) return mutator->Next();
  Json json = Json::parse(mutator->Pick(examples));
  for (size_t left = 1 + mutator->Below(3); left > 0; --left) {
    ChangeValue(mutator, &json);
  }
  return json.dump();
}

TEST(HttpMutationTest, RequestsAreReadOrRefusedByField) {
  Mutator mutator(3, Examples(), Words());
  int num_read = 0;
  const int num = NumMutations(5'000);
  for (int i = 0; i < num && !testing::Test::HasFailure(); ++i) {
    const std::string body = NextBody(Examples(), &mutator);
    SCOPED_TRACE(body.substr(0, 1'000));
    const absl::StatusOr<Json> json = ParseJsonObject(body);
    EXPECT_EQ(json.status(), CheckJsonObject(body));
    if (!json.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(json.status()));
      continue;
    }
    for (const auto parse : {&ParseCompletion, &ParseChatCompletion}) {
      const absl::StatusOr<OpenAiRequest> request = parse(*json);
      num_read += request.ok() ? 1 : 0;
      if (request.ok()) continue;
      EXPECT_TRUE(absl::IsInvalidArgument(request.status()));
      EXPECT_NE(request.status().message().find(": "), std::string::npos)
          << request.status();
    }
  }
  EXPECT_GT(num_read, num / 50);
}

TEST(HttpMutationTest, RoutesAnswerOrRefuseAndGoOn) {
  FakeVerifierOptions verifier;
  verifier.model.max_model_len = 64;
  HttpCluster cluster(nullptr, verifier);
  const auto complete = [&cluster] {
    HttpAnswer answer = cluster.Post("/v1/completions", kShortCompletion);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json["choices"];
  };
  const Json before = complete();
  struct Route {
    std::string path;
    std::vector<std::string> examples;
    Mutator mutator;
  };
  std::vector<Route> routes;
  for (const auto& [path, examples] :
       std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"/v1/completions", {kCompletion, kShortCompletion}},
           {"/v1/chat/completions", {kChat}},
           {"/api/Generate", {kGenerate}},
           {"/api/Score", {kText}},
           {"/api/Tokenize", {kText}},
           {"/api/Detokenize", {R"({"tokenIds": [5, 6]})"}},
           {"/api/RenderChat",
            {R"({"chat": {"messages": [{"role": "user"}]}})"}},
           {"/api/DrainNode", {kNode}},
           {"/api/InspectNextToken", {kInspect}}}) {
    const auto seed = static_cast<uint32_t>(4 + routes.size());
    routes.push_back({path, examples, Mutator(seed, examples, Words())});
  }
  int num_answered = 0;
  const int num = NumMutations(500);
  for (int i = 0; i < num && !testing::Test::HasFailure(); ++i) {
    Route& route = routes[static_cast<size_t>(i) % routes.size()];
    const std::string& path = route.path;
    const std::string body = NextBody(route.examples, &route.mutator);
    SCOPED_TRACE(absl::StrCat(path, " ", body.substr(0, 1'000)));
    const HttpAnswer answer = cluster.Post(path, body);
    num_answered += answer.status == 200 ? 1 : 0;
    // Nothing fails inside, and nothing waits for its deadline. The fake
    // verifier neither inspects nor scores, 501, and tells no
    // log-probabilities, 503.
    EXPECT_TRUE(
        answer.status == 200 || (answer.status >= 400 && answer.status < 500) ||
        answer.status == 501 ||
        (answer.status == 503 && body.find("ogprobs") != std::string::npos))
        << answer.status << " " << answer.body.substr(0, 1'000);
    for (const std::string& event : answer.events) {
      EXPECT_TRUE(event == "[DONE]" || Json::accept(event)) << event;
    }
    if (answer.events.empty() && !answer.body.empty()) {
      EXPECT_TRUE(answer.json.is_object()) << answer.body.substr(0, 1'000);
    }
  }
  EXPECT_GT(num_answered, num / 50);
  EXPECT_TRUE(
      Eventually([&] { return cluster->coordinator()->num_requests() == 0; }));
  EXPECT_EQ(complete(), before);
}

}  // namespace
}  // namespace specwire::coordinator
