// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "specwire/v1/generation.pb.h"

namespace specwire::cli {

// One choice of a reply, put together from its messages.
struct Choice {
  std::vector<int32_t> token_ids;
  std::string text;
  std::vector<v1::TokenOrigin> origins;
  std::vector<v1::PositionLogprobs> logprobs;
  // The text that came with each token: "" for one whose text had to wait.
  std::vector<std::string> pieces;
  // If asked for; what is left at the end is the last entry.
  std::vector<v1::PassTrace> trace;
  v1::GenerateFinished finished;
  bool is_finished = false;
};

// A whole reply.
struct Completion {
  v1::GenerateStarted started;
  // What was asked about the prompt: its text, and an entry for each of its
  // tokens.
  std::string prompt_text;
  std::vector<v1::PositionLogprobs> prompt_logprobs;
  // By index.
  std::vector<Choice> choices;
  // How often a lost coordinator was replaced; the figures are those of the
  // last one.
  int num_resumes = 0;

  // Takes one message of the stream.
  void Add(const v1::GenerateResponse& response);
};

// What `generate --json` prints: one choice's fields beside the request's, or,
// if `several`, a list "choices" and the tokens used by all together.
nlohmann::ordered_json ToJson(const Completion& completion, bool several);

// {"token_id", "logprob", "top": [[id, logprob], ...]}; null for a token
// without log-probability. JSON has no infinity: what has no probability is
// told as kNoLogprob.
nlohmann::ordered_json LogprobJson(const v1::PositionLogprobs& position);
inline constexpr double kNoLogprob = -9999;
// A log-probability as JSON tells it.
double JsonLogprob(double logprob);

// Acceptance figures under vLLM's names, and more.
nlohmann::ordered_json StatsJson(const v1::SpeculationStats& stats);

// "stop", "length", "abort" or "error".
absl::string_view FinishReasonName(v1::FinishReason reason);

// The figures of a choice in two lines for people, without line break at the
// end.
std::string FiguresText(const v1::GenerateStarted& started,
                        const Choice& choice);

// One line; malformed UTF-8 becomes U+FFFD, and what would steer a terminal an
// escape of JSON.
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace specwire::cli
