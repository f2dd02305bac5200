// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace specwire {

// Temperatures below this are greedy: the arg-max, no noise.
inline constexpr float kGreedyTemperature = 1e-5f;

// Most entries of logit_bias.
inline constexpr int kMaxLogitBiases = 1024;

// A bias for one token's logit.
struct LogitBias {
  int32_t token_id = 0;
  float bias = 0;
};

// How the next token is drawn, every value in force (no "absent" left). Names,
// ranges and defaults are those of proto/specwire/v1/types.proto.
struct SamplingParams {
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  int64_t seed = 0;
  std::vector<LogitBias> logit_bias;
};

// When a request ends, beside EOS and the end of the context.
struct StopCriteria {
  // Absent: the room left in the context.
  std::optional<int32_t> max_tokens;
  int32_t min_tokens = 0;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
};

enum class AcceptanceRule { kCoupled, kRatio };

// Why a sequence ended.
enum class FinishReason { kNone, kStop, kLength, kAborted, kError };

// Checks ranges, with INVALID_ARGUMENT naming the parameter and its limit.
absl::Status ValidateSampling(const SamplingParams& params, int vocab_size);
absl::Status ValidateStop(const StopCriteria& stop, int vocab_size);

}  // namespace specwire
