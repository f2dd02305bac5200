// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "specwire/v1/generation.pb.h"

namespace specwire::cli {

// The flags that generate and chat share. What is absent is left to the
// coordinator, and so are all ranges: it names the field and the limit.
struct RequestFlags {
  std::string model;
  std::optional<int32_t> max_tokens;
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<int64_t> seed;
  std::vector<std::string> stop;
  std::optional<float> repetition_penalty;
  std::optional<float> frequency_penalty;
  std::optional<float> presence_penalty;
  std::optional<int32_t> min_tokens;
  // Each "ID=BIAS".
  std::vector<std::string> logit_bias;
  std::vector<int32_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;

  bool no_speculation = false;
  std::optional<int32_t> max_draft_tokens;
  std::string drafter;
  // "coupled" or "ratio".
  std::optional<std::string> rule;
  std::optional<int64_t> patience_us;
  std::optional<int32_t> window;

  int32_t priority = 0;
  std::string cache_salt;
};
void AddRequestFlags(CLI::App* app, RequestFlags* flags);

// The request that the flags describe, without a prompt. INVALID_ARGUMENT if a
// flag is malformed.
absl::StatusOr<v1::GenerateRequest> MakeRequest(const RequestFlags& flags);

// Parses "1,2,3"; `field` is named in errors. An empty text is an empty list.
absl::StatusOr<std::vector<int32_t>> ParseTokenIds(absl::string_view text,
                                                   absl::string_view field);

}  // namespace specwire::cli
