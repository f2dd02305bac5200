// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/openai_usage.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace specwire::coordinator {
namespace {

using Json = nlohmann::json;

Json SpeculationJson(const std::vector<const v1::GenerateFinished*>& choices) {
  int64_t steps = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
  std::vector<int64_t> histogram;
  for (const v1::GenerateFinished* choice : choices) {
    const v1::SpeculationStats& stats = choice->speculation();
    steps += stats.num_spec_steps();
    drafted += stats.num_draft_tokens();
    accepted += stats.num_accepted_draft_tokens();
    const auto size = static_cast<size_t>(stats.acceptance_histogram_size());
    if (histogram.size() < size) histogram.resize(size);
    for (size_t i = 0; i < size; ++i) {
      histogram[i] += stats.acceptance_histogram(static_cast<int>(i));
    }
  }
  const auto ratio = [](int64_t part, int64_t whole) {
    return whole == 0 ? 0.0
                      : static_cast<double>(part) / static_cast<double>(whole);
  };
  const v1::SpeculationStats& first = choices.front()->speculation();
  return {
      {"mean_acceptance_length",
       steps == 0 ? 0.0 : 1.0 + ratio(accepted, steps)},
      {"draft_acceptance_rate", ratio(accepted, drafted)},
      {"acceptance_histogram", histogram},
      {"num_spec_steps", steps},
      {"num_draft_tokens", drafted},
      {"num_accepted_draft_tokens", accepted},
      {"num_spec_tokens", first.num_spec_tokens()},
      {"rule", first.rule() == v1::ACCEPTANCE_RULE_RATIO ? "ratio" : "coupled"},
      {"drafter", first.drafter()}};
}

}  // namespace

Json UsageJson(const std::vector<const v1::GenerateFinished*>& choices) {
  int64_t completion = 0;
  for (const v1::GenerateFinished* choice : choices) {
    completion += choice->usage().completion_tokens();
  }
  const v1::Usage& first = choices.front()->usage();
  return {{"prompt_tokens", first.prompt_tokens()},
          {"completion_tokens", completion},
          {"total_tokens", first.prompt_tokens() + completion},
          {"prompt_tokens_details",
           {{"cached_tokens", first.cached_prompt_tokens()}}}};
}

Json MetricsJson(const std::vector<const v1::GenerateFinished*>& choices) {
  v1::GenerateTimings times = choices.front()->timings();
  double tokens_per_second = 0;
  double itl_ms = 0;
  for (const v1::GenerateFinished* choice : choices) {
    const v1::GenerateTimings& own = choice->timings();
    times.set_time_to_first_token_ms(
        std::min(times.time_to_first_token_ms(), own.time_to_first_token_ms()));
    times.set_queue_time_ms(
        std::min(times.queue_time_ms(), own.queue_time_ms()));
    times.set_generation_time_ms(
        std::max(times.generation_time_ms(), own.generation_time_ms()));
    tokens_per_second += own.tokens_per_second();
    itl_ms += own.mean_itl_ms();
  }
  return {{"speculative_decoding", SpeculationJson(choices)},
          {"time_to_first_token_ms", times.time_to_first_token_ms()},
          {"generation_time_ms", times.generation_time_ms()},
          {"queue_time_ms", times.queue_time_ms()},
          {"mean_itl_ms", itl_ms / static_cast<double>(choices.size())},
          {"tokens_per_second", tokens_per_second}};
}

void AddSteps(const google::protobuf::RepeatedPtrField<v1::PassTrace>& passes,
              std::vector<SpeculationStep>* steps) {
  for (const v1::PassTrace& pass : passes) {
    SpeculationStep step;
    for (const v1::DraftTrace& draft : pass.drafts()) {
      for (const v1::DraftTokenTrace& token : draft.tokens()) {
        const v1::DraftOutcome outcome = token.outcome();
        const bool accepted = outcome == v1::DRAFT_OUTCOME_ACCEPTED;
        const bool verified = accepted ||
                              outcome == v1::DRAFT_OUTCOME_REJECTED ||
                              outcome == v1::DRAFT_OUTCOME_DISCARDED;
        step.num_accepted += accepted ? 1 : 0;
        step.num_drafted += verified ? 1 : 0;
      }
    }
    if (step.num_drafted > 0) steps->push_back(step);
  }
}

void AddStepsJson(const std::vector<SpeculationStep>& steps,
                  Json* speculation) {
  Json drafted = Json::array();
  Json accepted = Json::array();
  std::map<int, std::vector<int64_t>> by_length;
  for (const SpeculationStep& step : steps) {
    drafted.push_back(step.num_drafted);
    accepted.push_back(step.num_accepted);
    std::vector<int64_t>& histogram = by_length[step.num_drafted];
    histogram.resize(static_cast<size_t>(step.num_drafted) + 1);
    ++histogram[static_cast<size_t>(step.num_accepted)];
  }
  Json histograms = Json::object();
  for (const auto& [length, histogram] : by_length) {
    histograms[std::to_string(length)] = histogram;
  }
  (*speculation)["per_step_drafted"] = std::move(drafted);
  (*speculation)["per_step_accepted"] = std::move(accepted);
  (*speculation)["acceptance_histogram_by_draft_length"] =
      std::move(histograms);
}

}  // namespace specwire::coordinator
