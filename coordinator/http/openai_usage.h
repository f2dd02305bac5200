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

// A verify pass that had draft tokens.
struct SpeculationStep {
  int num_drafted = 0;
  int num_accepted = 0;
};

// The steps among passes.
void AddSteps(const google::protobuf::RepeatedPtrField<v1::PassTrace>& passes,
              std::vector<SpeculationStep>* steps);

// Adds what is told of single steps: per_step_drafted, per_step_accepted and
// acceptance_histogram_by_draft_length, choice by choice in order.
void AddStepsJson(const std::vector<SpeculationStep>& steps,
                  nlohmann::json* speculation);

}  // namespace specwire::coordinator
