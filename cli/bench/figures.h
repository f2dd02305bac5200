// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/bench/dataset.h"
#include "cli/bench/options.h"
#include "cli/bench/record.h"
#include "cli/bench/statistics.h"
#include "specwire/v1/types.pb.h"

// From single requests to what is reported. Pure functions.

namespace specwire::cli::bench {

// A block as it ran in one mode.
struct BlockRun {
  int64_t number = 0;
  Mode mode = Mode::kPlain;
  absl::Duration wall;
  // All its requests were sent and none was cancelled.
  bool complete = true;
};

// All that a run has seen.
struct RunResult {
  // By the wall clock, when times of records are zero.
  absl::Time started;
  // In the order in which they ended; warm-up left out.
  std::vector<Record> records;
  std::vector<BlockRun> blocks;
  // Of each mode.
  int64_t num_warmup = 0;
  bool interrupted = false;
  // Too many requests failed in a row.
  bool gave_up = false;
  // CPU time of this client while blocks ran.
  double client_cpu_s = 0;
};

// Requests that failed with one status code.
struct FailureFigures {
  int64_t count = 0;
  bool overload = false;
  // The message of the first.
  std::string message;
  Summary latency_ms;
};

// The figures of a set of requests of one mode.
struct Figures {
  int64_t num_completed = 0;
  int64_t num_failed = 0;
  // By name of the status code.
  std::map<std::string, FailureFigures> failures;
  // Of completed requests, as everything below.
  int64_t prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;
  int64_t output_tokens = 0;
  double wall_s = 0;
  // Sum of the requests' latencies.
  double busy_s = 0;

  Summary ttft_ms;
  Summary itl_ms;
  // Between two messages with tokens.
  Summary chunk_gap_ms;
  Summary e2e_ms;
  // At the coordinator, until the verifier's first step.
  Summary queue_ms;
  // From the time a request was meant to be sent until it was.
  Summary send_delay_ms;

  v1::SpeculationStats speculation;
  // Means over the requests whose replies tell them.
  std::optional<double> predicted_speedup;
  std::optional<double> measured_speedup;
  // Tokens in messages by messages.
  double tokens_per_chunk = 0;
  // 4-grams of the text that occurred earlier in prompt + completion; mean over
  // requests.
  double repeat_rate = 0;
  // Requests within all limits, and their tokens.
  int64_t num_good = 0;
  int64_t good_tokens = 0;

  // Tokens by wall time.
  double output_tokens_per_second() const;
  // Tokens by the sum of the requests' latencies: what one user sees.
  double stream_tokens_per_second() const;
  double requests_per_second() const;
  // Tokens by passes, those over the prompt included.
  double tokens_per_pass() const;
};
// `has_deadline`: requests had a deadline of their own.
Figures ComputeFigures(const std::vector<const Record*>& records,
                       absl::Duration wall,
                       const Limits& limits,
                       bool has_deadline);

// What both modes of a run say about each other.
struct Comparison {
  // Of output tokens a second, speculative by plain, over pairs of blocks; and
  // of all tokens by all time.
  std::optional<RatioEstimate> throughput;
  double total_throughput = 0;
  // Of the median time to first token of each pair of blocks, plain by
  // speculative: above 1 speculation is faster, as above.
  std::optional<RatioEstimate> ttft;
};
Comparison Compare(const RunResult& run);

// The same for single streams, speculative by plain, over pairs of requests of
// equal index that completed in both modes.
struct RequestComparison {
  // Tokens by latency.
  std::optional<PooledRatio> end_to_end;
  // Tokens behind the first message by the time from it to the last: decoding
  // alone, without queue and prompt.
  std::optional<PooledRatio> decoding;
};
RequestComparison CompareRequests(
    const std::vector<const Record*>& plain,
    const std::vector<const Record*>& speculative);

// Whether both modes gave the same tokens.
struct IdsComparison {
  // Requests that completed in both modes.
  int64_t num_compared = 0;
  struct Difference {
    int64_t index;
    size_t question;
    // The first token that differs, from 0.
    size_t position;
  };
  std::vector<Difference> differences;

  bool equal() const { return differences.empty(); }
};
IdsComparison CompareIds(const std::vector<Record>& records);

// Everything that is printed.
struct Report {
  std::map<Mode, Figures> modes;
  // By GroupOf(category), in the data set's order.
  struct Category {
    std::string name;
    std::map<Mode, Figures> modes;
    // With both modes only.
    std::optional<RequestComparison> requests;
  };
  std::vector<Category> categories;
  // With both modes only.
  std::optional<Comparison> comparison;
  std::optional<RequestComparison> requests;
  std::optional<IdsComparison> ids;
  int64_t num_cancelled = 0;
  bool synthetic = false;
  std::string model;
  std::string model_digest;

  // A request failed for another reason than load.
  bool HasFaults() const;
};
Report MakeReport(const RunResult& run,
                  const Options& options,
                  const std::vector<Question>& questions);

}  // namespace specwire::cli::bench
