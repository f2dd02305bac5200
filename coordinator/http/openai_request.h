// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "specwire/v1/generation.pb.h"

namespace specwire::coordinator {

// A request in OpenAI's form, as ours and with what the answer's form needs.
struct OpenAiRequest {
  v1::GenerateRequest generate;
  // /v1/chat/completions, else /v1/completions.
  bool chat = false;
  bool stream = false;
  // A stream ends with a chunk that tells the usage.
  bool include_usage = false;
  // Candidates for each token; absent: no log-probabilities.
  std::optional<int32_t> logprobs;
};

// Bodies of POST /v1/completions and /v1/chat/completions: OpenAI's fields,
// ours beside them (top_k, min_p, ...), and `speculation` as in the proto. A
// field that is not known is ignored; one that is known, would change what
// comes back and is not supported is INVALID_ARGUMENT, with its name, unless it
// has the value that changes nothing. Values are checked where gRPC's are.
absl::StatusOr<OpenAiRequest> ParseCompletion(const nlohmann::json& body);
absl::StatusOr<OpenAiRequest> ParseChatCompletion(const nlohmann::json& body);

// `status` of a request that was made so, naming the field as OpenAI does:
// max_tokens, not stop.max_tokens.
absl::Status WithOpenAiField(const absl::Status& status);

}  // namespace specwire::coordinator
