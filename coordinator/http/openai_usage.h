// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "nlohmann/json.hpp"
#include "specwire/v1/generation.pb.h"

namespace specwire::coordinator {

// Tokens that a request used: the prompt's once, the completions' of all
// choices. REQUIRES: at least one choice.
nlohmann::json UsageJson(
    const std::vector<const v1::GenerateFinished*>& choices);

// Acceptance figures under vLLM's names, over all choices, in
// "speculative_decoding", and the times of the request beside it: to the first
// token of any choice, and to the last of all.
nlohmann::json MetricsJson(
    const std::vector<const v1::GenerateFinished*>& choices);

}  // namespace specwire::coordinator
