// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "specwire/v1/generation.grpc.pb.h"
#include "tests/testing/eventually.h"

namespace specwire {

// All that a Generate call brought.
struct GenerateResult {
  absl::Status status;
  v1::GenerateStarted started;
  std::vector<int32_t> token_ids;
  // Of deltas and the last message.
  std::string text;
  std::vector<v1::TokenOrigin> origins;
  // One for each token, and for each of the prompt, if asked for.
  std::vector<v1::PositionLogprobs> logprobs;
  std::vector<v1::PositionLogprobs> prompt_logprobs;
  // Repeated, if asked for.
  std::string prompt_text;
  // Of all passes, and of what was left at the end, if asked for.
  std::vector<v1::PassTrace> trace;
  v1::GenerateFinished finished;
  // What was wrong with the order or the shape of the messages, or with the
  // acceptance figures; empty if nothing.
  std::string fault;
};

// Calls and reads to the end. `on_delta` may stop reading by returning false:
// the call is then cancelled.
GenerateResult CallGenerate(
    v1::GenerationService::StubInterface* stub,
    const v1::GenerateRequest& request,
    const std::function<bool(const v1::GenerateDelta&)>& on_delta = nullptr,
    absl::Duration timeout = absl::Seconds(20));

// The same for a request for request.n() completions, by index; status and
// `started` are the call's.
std::vector<GenerateResult> CallGenerateChoices(
    v1::GenerationService::StubInterface* stub,
    const v1::GenerateRequest& request,
    const std::function<bool(const v1::GenerateDelta&)>& on_delta = nullptr,
    absl::Duration timeout = absl::Seconds(20));

// The value of a series in the text of /metrics, summed over all label sets
// that contain `label` (all if empty).
double SumSeries(absl::string_view text,
                 const std::string& name,
                 const std::string& label = "");

// A greedy request for `max_tokens` tokens after `text`.
v1::GenerateRequest GreedyRequest(const std::string& text, int max_tokens);

// Calls job(0), ..., job(num_jobs - 1) on so many threads.
void InParallel(int num_jobs,
                int num_threads,
                const std::function<void(int)>& job);

}  // namespace specwire
