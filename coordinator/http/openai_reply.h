// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/text/tokenizer.h"
#include "coordinator/http/openai_request.h"
#include "coordinator/http/openai_usage.h"
#include "coordinator/options.h"
#include "nlohmann/json.hpp"
#include "specwire/v1/generation.pb.h"

namespace specwire::coordinator {

// Turns the messages of one Generate call into OpenAI's objects, a whole answer
// or the chunks of a stream; both are made of the same pieces.
//
// Thread safety: one thread.
class OpenAiReply {
 public:
  struct Settings {
    // "cmpl-..." or "chatcmpl-...".
    std::string id;
    // Unix time in seconds.
    int64_t created = 0;
    // What to tell of acceptance; kNone leaves out the times too.
    SpecDecodeMetrics metrics = SpecDecodeMetrics::kSummary;
  };

  OpenAiReply(const OpenAiRequest& request, Settings settings);

  // The first message. The tokenizer is that of its model.
  void Start(const v1::GenerateStarted& started,
             std::shared_ptr<const Tokenizer> tokenizer);
  // Takes any further message, and returns the chunks that it makes, which are
  // also parts of the whole answer.
  std::vector<nlohmann::json> Take(const v1::GenerateResponse& response);
  // When all has been taken: the last chunk of a stream that is to tell the
  // usage, or the whole answer.
  nlohmann::json UsageChunk() const;
  nlohmann::json Whole() const;

 private:
  struct Choice {
    std::string text;
    nlohmann::json logprobs;
    nlohmann::json finish_reason;
    nlohmann::json stop_reason;
    // Characters told so far.
    int64_t num_characters = 0;
    bool begun = false;
    v1::GenerateFinished finished;
    // If each step is to be told.
    std::vector<SpeculationStep> steps;
  };

  void TakePart(const v1::GenerateResponse& response,
                std::vector<nlohmann::json>* chunks);
  void TakePrompt(const v1::GeneratePrompt& prompt);
  // The chunk of a piece of a choice, with the prompt in front of the first.
  void AddPiece(int index,
                const std::string& text,
                nlohmann::json logprobs,
                std::vector<nlohmann::json>* chunks);
  nlohmann::json Chunk(int index, nlohmann::json body) const;
  nlohmann::json Envelope(const char* object) const;
  nlohmann::json Logprobs(const v1::GenerateDelta& delta);
  nlohmann::json ChatLogprobs(const v1::GenerateDelta& delta) const;
  nlohmann::json ChatToken(const v1::TokenLogprob& token) const;
  // One more token for `logprobs` of /v1/completions, `offset` characters into
  // the text. No `chosen`: the first token of a prompt.
  void AddToken(const v1::PositionLogprobs& position,
                int32_t token_id,
                int64_t offset,
                nlohmann::json* logprobs) const;
  std::string TokenText(int32_t id) const;
  nlohmann::json Usage() const;
  nlohmann::json Metrics() const;

  const OpenAiRequest& request_;
  const Settings settings_;
  std::string model_;
  std::string model_digest_;
  int64_t seed_ = 0;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int32_t> prompt_ids_;
  // What is repeated in front of each choice.
  std::string echo_;
  nlohmann::json echo_logprobs_;
  std::vector<Choice> choices_;
  // Nothing more comes of the prompt; what came of other choices before.
  bool prompt_is_whole_ = false;
  std::vector<v1::GenerateResponse> held_;
};

// The text of a body; bytes that are no UTF-8 are replaced.
std::string DumpJson(const nlohmann::json& json);

}  // namespace specwire::coordinator
