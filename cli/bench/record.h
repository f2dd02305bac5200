// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/bench/options.h"
#include "specwire/v1/generation.pb.h"

namespace specwire::cli::bench {

// A message that brought tokens.
struct Chunk {
  absl::Duration time;
  int64_t num_tokens;
};

// One request, as its client saw it. Times are since the start of the run.
struct Record {
  // What it asks for: requests of equal index have the same question and seed
  // in both modes.
  int64_t index = 0;
  Mode mode = Mode::kPlain;
  // Index of its question in the data set.
  size_t question = 0;
  int64_t block = 0;

  // When it was meant to be sent, when it was, and when its last message came
  // or it failed.
  absl::Duration scheduled;
  absl::Duration sent;
  absl::Duration done;
  std::vector<Chunk> chunks;
  std::vector<int32_t> token_ids;
  // As the coordinator told them.
  std::vector<int32_t> prompt_token_ids;
  float temperature = 0;
  int64_t seed = 0;

  absl::Status status;
  // Cancelled because the run was stopped; counts as nothing.
  bool cancelled = false;
  std::string model;
  std::string model_digest;
  bool synthetic = false;
  // If `status` is OK.
  v1::GenerateFinished finished;

  bool ok() const { return status.ok() && !cancelled; }
  bool failed() const { return !status.ok() && !cancelled; }

  // Takes one message that came at `now`.
  void Add(const v1::GenerateResponse& response, absl::Duration now);

  // All in milliseconds, from the time it was meant to be sent. Nothing if
  // there are too few tokens.
  std::optional<double> TtftMs() const;
  // Mean time of a token behind the first, however many a message brought.
  std::optional<double> ItlMs() const;
  double LatencyMs() const;

  // What came behind the first message, and from then to the last one: decoding
  // alone, without queue and prompt.
  int64_t num_decoded() const;
  absl::Duration decode_time() const;
};

// The cluster refused for load, which is what an overloaded one shall do; with
// a deadline, being late is part of that.
bool IsOverload(const absl::Status& status, bool has_deadline);

// Acceptance figures of several requests together. Derived figures are computed
// anew.
void AddStats(const v1::SpeculationStats& stats, v1::SpeculationStats* sum);

}  // namespace specwire::cli::bench
