// SPDX-License-Identifier: Apache-2.0
#include "coordinator/stats.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/numbers.h"
#include "common/metrics/names.h"
#include "coordinator/coordinator_metrics.h"
#include "coordinator/request_machine.h"
#include "coordinator/wire.h"

namespace specwire::coordinator {
namespace {

std::string Label(const CounterValue& counter, const char* name) {
  const auto found = counter.labels.find(name);
  return found == counter.labels.end() ? std::string() : found->second;
}

// A token's place in the pass.
int Position(const CounterValue& counter) {
  int position = 0;
  // Cannot fail: we have written it.
  (void)absl::SimpleAtoi(Label(counter, metric::kPosition), &position);
  return position;
}

int64_t Count(const CounterValue& counter) {
  return static_cast<int64_t>(counter.value);
}

// Adds the counter to the figure that it is of, if it is of any.
void AddTo(const CounterValue& counter, SpeculationFigures* figures) {
  const int64_t count = Count(counter);
  if (counter.name == metric::kNumDrafts) {
    figures->num_spec_steps += count;
  } else if (counter.name == metric::kNumDraftTokens) {
    figures->num_draft_tokens += count;
  } else if (counter.name == metric::kNumAcceptedTokens) {
    figures->num_accepted_draft_tokens += count;
  } else if (counter.name == metric::kNumUnverifiedTokens) {
    const std::string reason = Label(counter, metric::kReason);
    if (reason == kOverlapped) figures->num_overlapped_tokens += count;
    if (reason == kStale) figures->num_stale_tokens += count;
    if (reason == kTrimmed) figures->num_trimmed_tokens += count;
    if (reason == kUnused) figures->num_unused_tokens += count;
  } else if (counter.name == metric::kNumAheadCommits) {
    const std::string outcome = Label(counter, metric::kOutcome);
    if (outcome == kHit) figures->num_ahead_hits += count;
    if (outcome == kMiss) figures->num_ahead_misses += count;
  }
}

// Drafted tokens have no series of their own, they are the sum of the others.
v1::SpeculationStats Finish(SpeculationFigures figures) {
  figures.num_drafted_tokens =
      figures.num_draft_tokens + figures.num_overlapped_tokens +
      figures.num_stale_tokens + figures.num_trimmed_tokens +
      figures.num_unused_tokens;
  SpeculationSettings settings;
  settings.enabled = false;
  v1::SpeculationStats stats = MakeStats(figures, settings, "");
  stats.clear_rule();
  return stats;
}

// Entry j: steps that accepted exactly j. `reached` has, by place, the steps
// that accepted the token there.
std::vector<int64_t> Histogram(int64_t num_steps,
                               const std::map<int, int64_t>& reached) {
  std::vector<int64_t> histogram;
  if (num_steps == 0) return histogram;
  int64_t at_least = num_steps;
  for (const auto& [place, steps] : reached) {
    // Never negative, though the counters are read while they grow.
    histogram.push_back(std::max<int64_t>(at_least - steps, 0));
    at_least = steps;
  }
  histogram.push_back(at_least);
  return histogram;
}

int32_t ToInt32(int64_t value) {
  return static_cast<int32_t>(
      std::min<int64_t>(value, std::numeric_limits<int32_t>::max()));
}

void AddNamed(const std::map<std::string, int64_t>& counts,
              google::protobuf::RepeatedPtrField<v1::NamedCount>* out) {
  for (const auto& [name, count] : counts) {
    // Some series are there before anything has happened.
    if (count == 0) continue;
    v1::NamedCount* named = out->Add();
    named->set_name(name);
    named->set_count(count);
  }
}

}  // namespace

v1::GetStatsResponse MakeStatsResponse(
    const std::vector<CounterValue>& counters) {
  std::map<std::string, int64_t> requests;
  std::map<std::string, int64_t> failures;
  // By draft node, verifier node and model.
  std::map<std::tuple<std::string, std::string, std::string>,
           SpeculationFigures>
      pairs;
  std::map<int, int64_t> reached;
  SpeculationFigures total;
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  for (const CounterValue& counter : counters) {
    AddTo(counter, &total);
    if (counter.labels.contains(kDraftNodeLabel)) {
      AddTo(counter,
            &pairs[{Label(counter, kDraftNodeLabel),
                    Label(counter, kVerifierNodeLabel),
                    Label(counter, metric::kModelName)}]);
    } else if (counter.name == metric::kRequestSuccess) {
      requests[Label(counter, metric::kFinishedReason)] += Count(counter);
    } else if (counter.name == metric::kRequestFailure) {
      failures[Label(counter, metric::kCode)] += Count(counter);
    } else if (counter.name == metric::kPromptTokens) {
      prompt_tokens += Count(counter);
    } else if (counter.name == metric::kGenerationTokens) {
      completion_tokens += Count(counter);
    } else if (counter.name == metric::kNumPasses) {
      total.num_passes += Count(counter);
    } else if (counter.name == metric::kNumAcceptedTokensPerPos) {
      reached[Position(counter)] += Count(counter);
    }
  }
  total.acceptance_histogram = Histogram(total.num_spec_steps, reached);

  v1::GetStatsResponse response;
  AddNamed(requests, response.mutable_requests());
  AddNamed(failures, response.mutable_failures());
  for (const auto& [names, figures] : pairs) {
    v1::PairStats* pair = response.add_pairs();
    pair->set_draft_node(std::get<0>(names));
    pair->set_verifier_node(std::get<1>(names));
    pair->set_model(std::get<2>(names));
    *pair->mutable_stats() = Finish(figures);
  }
  *response.mutable_total() = Finish(total);
  response.set_num_prompt_tokens(prompt_tokens);
  response.set_num_generation_tokens(completion_tokens);
  response.mutable_usage()->set_prompt_tokens(ToInt32(prompt_tokens));
  response.mutable_usage()->set_completion_tokens(ToInt32(completion_tokens));
  return response;
}

}  // namespace specwire::coordinator
