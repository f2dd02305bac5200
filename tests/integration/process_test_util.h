// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "specwire/v1/generation.pb.h"
#include "tests/testing/process_cluster.h"

// What the tests over real processes share.

namespace specwire {

inline constexpr int64_t kLockStep = -1;

// scripts/test.sh --full.
inline bool FullTest() {
  const char* value = std::getenv("SPECWIRE_TEST_FULL");
  return value != nullptr && std::string(value) == "1";
}

// A text that repeats itself, for drafters that look things up.
inline std::vector<int32_t> RepeatingPrompt(int times = 6) {
  std::vector<int32_t> ids;
  for (int i = 0; i < times; ++i) {
    for (const int32_t id : {119, 261, 40, 41, 265, 291}) ids.push_back(id);
  }
  return ids;
}

// How tokens are drawn.
struct SamplingSetting {
  const char* name;
  float temperature = 0;
  int top_k = 0;
  float top_p = 1;
  // Penalties, a bias, and stop tokens that min_tokens keeps out.
  bool processors = false;
};

// For exactly `max_tokens` tokens; the seed is fixed.
inline v1::GenerateRequest SeededRequest(const std::vector<int32_t>& prompt,
                                         const SamplingSetting& setting,
                                         int max_tokens) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Assign(prompt.begin(),
                                                     prompt.end());
  v1::SamplingParams* sampling = request.mutable_sampling();
  sampling->set_temperature(setting.temperature);
  sampling->set_top_k(setting.top_k);
  sampling->set_top_p(setting.top_p);
  sampling->set_seed(-77);
  request.mutable_stop()->set_max_tokens(max_tokens);
  request.mutable_stop()->set_ignore_eos(true);
  if (setting.processors) {
    sampling->set_repetition_penalty(1.2f);
    sampling->set_frequency_penalty(0.3f);
    sampling->set_presence_penalty(-0.2f);
    v1::LogitBias* bias = sampling->add_logit_bias();
    bias->set_token_id(261);
    bias->set_bias(2);
    request.mutable_stop()->set_min_tokens(max_tokens);
    for (const int32_t id : {40, 119}) {
      request.mutable_stop()->add_stop_token_ids(id);
    }
  }
  return request;
}

// The same without speculation.
inline v1::GenerateRequest Plain(v1::GenerateRequest request) {
  request.mutable_speculation()->set_enabled(false);
  return request;
}

inline std::string TestProgram(const std::string& name) {
  return absl::StrCat(SPECWIRE_BIN_DIR, "/../tests/", name);
}

}  // namespace specwire
