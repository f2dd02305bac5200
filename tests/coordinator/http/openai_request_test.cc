// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/openai_request.h"

#include <string>

#include "common/base/retry_delay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::coordinator {
namespace {

using testing::ElementsAre;
using Json = nlohmann::json;

Json Text(const std::string& fields) {
  return Json::parse("{\"prompt\": \"p\"" +
                     (fields.empty() ? "" : ", " + fields) + "}");
}

Json Chat(const std::string& fields) {
  return Json::parse(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]" +
      (fields.empty() ? "" : ", " + fields) + "}");
}

std::string Problem(const absl::StatusOr<OpenAiRequest>& request) {
  EXPECT_TRUE(request.ok() || absl::IsInvalidArgument(request.status()));
  return std::string(request.status().message());
}

TEST(OpenAiRequestTest, TakesAllParameters) {
  const auto request = ParseCompletion(Text(R"(
      "model": "m", "max_tokens": 5, "temperature": 0.5, "top_p": 0.25,
      "top_k": 3, "min_p": 0.125, "n": 2, "seed": 7, "stop": ["a", "b"],
      "presence_penalty": 1, "frequency_penalty": -1,
      "repetition_penalty": 1.5, "logit_bias": {"3": -100, "4": 2.5},
      "min_tokens": 1, "ignore_eos": true, "stop_token_ids": [8, 9],
      "include_stop_str_in_output": true, "skip_special_tokens": false,
      "logprobs": 2, "echo": true, "priority": 4, "cache_salt": "t",
      "user": "u", "something_new": {}, "stream": true,
      "stream_options": {"include_usage": true},
      "speculation": {"enabled": true, "max_draft_tokens": 6})"));
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_FALSE(request->chat);
  EXPECT_TRUE(request->stream);
  EXPECT_TRUE(request->include_usage);
  EXPECT_EQ(request->logprobs, 2);
  const v1::GenerateRequest& generate = request->generate;
  EXPECT_EQ(generate.text(), "p");
  EXPECT_EQ(generate.model(), "m");
  EXPECT_EQ(generate.n(), 2);
  EXPECT_EQ(generate.logprobs(), 2);
  EXPECT_EQ(generate.prompt_logprobs(), 2);
  EXPECT_TRUE(generate.echo());
  EXPECT_EQ(generate.priority(), 4);
  EXPECT_EQ(generate.cache_salt(), "t");
  EXPECT_FALSE(generate.skip_special_tokens());
  const v1::SamplingParams& sampling = generate.sampling();
  EXPECT_EQ(sampling.temperature(), 0.5f);
  EXPECT_EQ(sampling.top_p(), 0.25f);
  EXPECT_EQ(sampling.top_k(), 3);
  EXPECT_EQ(sampling.min_p(), 0.125f);
  EXPECT_EQ(sampling.seed(), 7);
  EXPECT_EQ(sampling.presence_penalty(), 1);
  EXPECT_EQ(sampling.frequency_penalty(), -1);
  EXPECT_EQ(sampling.repetition_penalty(), 1.5f);
  ASSERT_EQ(sampling.logit_bias_size(), 2);
  EXPECT_EQ(sampling.logit_bias(0).token_id(), 3);
  EXPECT_EQ(sampling.logit_bias(1).bias(), 2.5f);
  const v1::StopCriteria& stop = generate.stop();
  EXPECT_EQ(stop.max_tokens(), 5);
  EXPECT_THAT(stop.stop(), ElementsAre("a", "b"));
  EXPECT_THAT(stop.stop_token_ids(), ElementsAre(8, 9));
  EXPECT_EQ(stop.min_tokens(), 1);
  EXPECT_TRUE(stop.ignore_eos());
  EXPECT_TRUE(stop.include_stop_str_in_output());
  EXPECT_EQ(generate.speculation().max_draft_tokens(), 6);
}

TEST(OpenAiRequestTest, AbsentAndNullLeaveTheDefaultsOfGrpc) {
  for (const char* fields :
       {"", R"("max_tokens": null, "temperature": null, "stop": null,
              "tools": null, "suffix": null, "logprobs": null, "n": null,
              "stream": null, "stream_options": null, "logit_bias": null)"}) {
    const auto request = ParseCompletion(Text(fields));
    ASSERT_TRUE(request.ok()) << request.status();
    v1::GenerateRequest plain;
    plain.set_text("p");
    v1::GenerateRequest made = request->generate;
    // Messages without anything in them say nothing.
    made.clear_sampling();
    made.clear_stop();
    made.clear_speculation();
    EXPECT_EQ(request->generate.sampling().ByteSizeLong(), 0u);
    EXPECT_EQ(request->generate.stop().ByteSizeLong(), 0u);
    EXPECT_EQ(made.SerializeAsString(), plain.SerializeAsString());
    EXPECT_FALSE(request->logprobs.has_value());
  }
}

TEST(OpenAiRequestTest, PromptsComeInSeveralForms) {
  const auto prompt = [](const std::string& json) {
    return ParseCompletion(Json{{"prompt", Json::parse(json)}});
  };
  EXPECT_EQ(prompt("\"a\"")->generate.text(), "a");
  EXPECT_EQ(prompt("[\"a\"]")->generate.text(), "a");
  EXPECT_THAT(prompt("[1, 2]")->generate.token_ids().ids(), ElementsAre(1, 2));
  EXPECT_THAT(prompt("[[1, 2]]")->generate.token_ids().ids(),
              ElementsAre(1, 2));
  EXPECT_EQ(Problem(prompt("[\"a\", \"b\"]")),
            "prompt: has 2 prompts; one request takes one");
  EXPECT_EQ(Problem(prompt("[]")), "prompt: must not be empty");
  EXPECT_EQ(Problem(prompt("1")), "prompt: must be a string or an array");
  EXPECT_EQ(Problem(prompt("[1, \"a\"]")), "prompt: must be a whole number");
  EXPECT_EQ(Problem(ParseCompletion(Json::object())), "prompt: missing");
}

TEST(OpenAiRequestTest, StopIsOneTextOrSeveral) {
  EXPECT_THAT(ParseCompletion(Text(R"("stop": "x")"))->generate.stop().stop(),
              ElementsAre("x"));
  EXPECT_EQ(Problem(ParseCompletion(Text(R"("stop": [1])"))),
            "stop: must be a string or an array of strings");
  EXPECT_EQ(Problem(ParseCompletion(Text(R"("stop": {})"))),
            "stop: must be a string or an array of strings");
}

TEST(OpenAiRequestTest, RefusesWhatWouldChangeTheAnswer) {
  for (const char* field : {R"("suffix": "x")",
                            R"("best_of": 2)",
                            R"("use_beam_search": true)",
                            R"("response_format": {"type": "json_object"})",
                            R"("guided_json": {})",
                            R"("allowed_token_ids": [1])"}) {
    EXPECT_THAT(Problem(ParseCompletion(Text(field))),
                testing::EndsWith(": is not supported"))
        << field;
  }
  for (const char* field : {R"("tools": [{}])",
                            R"("functions": [{}])",
                            R"("tool_choice": "auto")",
                            R"("tool_choice": {})",
                            R"("response_format": {"type": "json_schema"})",
                            R"("audio": {})",
                            R"("modalities": ["text", "audio"])",
                            R"("prediction": {})",
                            R"("reasoning_effort": "high")",
                            R"("best_of": 3)",
                            R"("chat_template": "x")",
                            R"("continue_final_message": true)"}) {
    EXPECT_THAT(Problem(ParseChatCompletion(Chat(field))),
                testing::EndsWith(": is not supported"))
        << field;
  }
}

TEST(OpenAiRequestTest, TakesTheValuesThatChangeNothing) {
  for (const char* field : {R"("suffix": "")",
                            R"("best_of": 1)",
                            R"("use_beam_search": false)",
                            R"("response_format": {"type": "text"})",
                            R"("bad_words": [])"}) {
    EXPECT_TRUE(ParseCompletion(Text(field)).ok()) << field;
  }
  for (const char* field : {R"("tools": [])",
                            R"("tool_choice": "none")",
                            R"("modalities": ["text"])",
                            R"("parallel_tool_calls": true)",
                            R"("store": false)",
                            R"("metadata": {"a": "b"})"}) {
    EXPECT_TRUE(ParseChatCompletion(Chat(field)).ok()) << field;
  }
}

TEST(OpenAiRequestTest, ChatLogprobsAreASwitchAndANumber) {
  EXPECT_EQ(ParseChatCompletion(Chat(R"("logprobs": true)"))->logprobs, 0);
  EXPECT_EQ(ParseChatCompletion(Chat(R"("logprobs": true, "top_logprobs": 4)"))
                ->generate.logprobs(),
            4);
  EXPECT_FALSE(ParseChatCompletion(Chat(R"("logprobs": false)"))
                   ->generate.has_logprobs());
  EXPECT_EQ(Problem(ParseChatCompletion(Chat(R"("top_logprobs": 4)"))),
            "top_logprobs: goes with \"logprobs\": true only");
  EXPECT_EQ(Problem(ParseChatCompletion(Chat(R"("logprobs": 4)"))),
            "logprobs: must be true or false");
}

TEST(OpenAiRequestTest, BothNamesOfMaxTokens) {
  EXPECT_EQ(ParseChatCompletion(Chat(R"("max_completion_tokens": 4)"))
                ->generate.stop()
                .max_tokens(),
            4);
  EXPECT_EQ(Problem(ParseChatCompletion(
                Chat(R"("max_completion_tokens": 4, "max_tokens": 5)"))),
            "max_completion_tokens: differs from max_tokens; give one of them");
}

TEST(OpenAiRequestTest, MessagesOfTextInTheRolesThatTemplatesKnow) {
  const auto chat = [](const std::string& messages) {
    return ParseChatCompletion(Json{{"messages", Json::parse(messages)}});
  };
  const auto request = chat(R"([
      {"role": "developer", "content": "d"},
      {"role": "user", "name": "anna",
       "content": [{"type": "text", "text": "a"},
                   {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": "c", "tool_calls": null}])");
  ASSERT_TRUE(request.ok()) << request.status();
  const v1::ChatPrompt& prompt = request->generate.chat();
  EXPECT_EQ(prompt.messages(0).role(), "system");
  EXPECT_EQ(prompt.messages(1).content(), "a\nb");
  EXPECT_EQ(prompt.messages(2).content(), "c");
  EXPECT_EQ(Problem(chat("{}")), "messages: must be an array");
  EXPECT_EQ(Problem(chat("[1]")), "messages[0]: must be an object");
  EXPECT_EQ(Problem(chat(R"([{"content": "x"}])")),
            "messages[0].role: must be a string");
  EXPECT_EQ(Problem(chat(R"([{"role": "tool", "content": "x"}])")),
            "messages[0].role: must be system, developer, user or assistant");
  EXPECT_EQ(Problem(chat(R"([{"role": "user"}])")),
            "messages[0].content: missing");
  EXPECT_EQ(Problem(chat(R"([{"role": "user", "content": 1}])")),
            "messages[0].content: must be a string or an array of parts");
  EXPECT_EQ(
      Problem(
          chat(R"([{"role": "user", "content": [{"type": "image_url"}]}])")),
      "messages[0].content: its parts must be {\"type\": \"text\", \"text\": "
      "...}");
  EXPECT_EQ(Problem(chat(R"([{"role": "assistant", "content": "x",
                              "tool_calls": [{}]}])")),
            "messages[0].tool_calls: is not supported");
}

TEST(OpenAiRequestTest, WrongTypesAndNumbersAreNamed) {
  EXPECT_EQ(Problem(ParseCompletion(Text(R"("temperature": "hot")"))),
            "temperature: must be a number");
  EXPECT_EQ(Problem(ParseCompletion(Text(R"("max_tokens": 1.5)"))),
            "max_tokens: must be a whole number");
  EXPECT_EQ(Problem(ParseCompletion(Text(R"("logit_bias": {"x": 1})"))),
            "logit_bias: its names must be token ids");
  EXPECT_EQ(Problem(ParseCompletion(Text(R"("logit_bias": [])"))),
            "logit_bias: must be an object");
  EXPECT_EQ(Problem(ParseCompletion(Text(R"("stream": "yes")"))),
            "stream: must be true or false");
  EXPECT_EQ(Problem(ParseCompletion(Text(R"("stream_options": {})"))),
            "stream_options: goes with \"stream\": true only");
  EXPECT_EQ(Problem(ParseCompletion(Text(R"("speculation": {"x": 1})"))),
            "speculation.x: there is no such field");
  EXPECT_EQ(Problem(ParseCompletion(Text(R"("speculation": [1])"))),
            "speculation: must be an object");
  EXPECT_EQ(Problem(ParseCompletion(Text(R"("seed": 18446744073709551616)"))),
            "seed: 1.8446744073709552e+19 is no whole number from "
            "-9223372036854775808 to 9223372036854775807");
}

TEST(OpenAiRequestTest, ErrorsNameTheFieldAsOpenAiDoes) {
  const auto renamed = [](const std::string& message) {
    return std::string(
        WithOpenAiField(absl::InvalidArgumentError(message)).message());
  };
  EXPECT_EQ(renamed("stop.max_tokens: 0 is"), "max_tokens: 0 is");
  EXPECT_EQ(renamed("sampling.top_p: 2 is"), "top_p: 2 is");
  EXPECT_EQ(renamed("prompt.text: must"), "prompt: must");
  EXPECT_EQ(renamed("prompt.chat.messages: must"), "messages: must");
  EXPECT_EQ(renamed("prompt.chat: model"), "messages: model");
  EXPECT_EQ(renamed("prompt.token_ids[0]: -1 is"), "prompt: [0]: -1 is");
  EXPECT_EQ(renamed("prompt_logprobs: 21"), "logprobs: 21");
  EXPECT_EQ(renamed("n: 99"), "n: 99");
  EXPECT_EQ(renamed("stop: too many"), "stop: too many");
  const absl::Status busy = WithRetryDelay(
      absl::ResourceExhaustedError("stop.x: y"), absl::Seconds(2));
  EXPECT_EQ(RetryDelay(WithOpenAiField(busy)), absl::Seconds(2));
}

}  // namespace
}  // namespace specwire::coordinator
