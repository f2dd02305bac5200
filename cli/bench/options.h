// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace specwire::cli::bench {

// How a request is decoded.
enum class Mode { kPlain, kSpeculative };

// "plain" or "speculative".
absl::string_view ModeName(Mode mode);

// Most requests in flight at once.
inline constexpr int kMaxConcurrency = 10000;

// What a request must not exceed to count as served well. Nothing: no limit.
struct Limits {
  std::optional<double> ttft_ms;
  std::optional<double> itl_ms;
  std::optional<double> e2e_ms;

  bool any() const { return ttft_ms || itl_ms || e2e_ms; }
};

// What the flags of `specwire bench` say. Those that are absent have a default
// that depends on others.
struct Options {
  std::string dataset;
  // Requests of each mode; default: as many as there are questions, or without
  // limit if there is a duration.
  std::optional<int64_t> num;
  // Closed loop: so many workers, each with one request at a time; default 1.
  std::optional<int32_t> concurrency;
  // Open loop: so many arrivals a second.
  std::optional<double> rate;
  std::optional<double> burstiness;
  std::optional<int32_t> max_concurrency;
  std::vector<Mode> modes = {Mode::kPlain, Mode::kSpeculative};
  int32_t max_tokens = 128;
  float temperature = 0;
  int64_t seed = 0;
  std::string model;
  std::string drafter;
  std::optional<int32_t> max_draft_tokens;
  std::optional<int64_t> patience_us;
  std::optional<int32_t> window;
  bool ignore_eos = false;
  int32_t warmup = 1;
  Limits limits;
  std::optional<double> duration_s;
  std::optional<int64_t> deadline_ms;
  bool share_prefixes = false;

  bool speculates() const;
  int num_workers() const { return concurrency.value_or(1); }
  // Most requests in flight at once.
  int max_in_flight() const;
};

// INVALID_ARGUMENT, naming the flag and its limit, if one is out of range or
// does not go with another.
absl::Status CheckOptions(const Options& options);

// Parses "plain", "speculative" or both with a comma between them.
absl::StatusOr<std::vector<Mode>> ParseModes(absl::string_view text);

// Parses "ttft_ms:200,itl_ms:20,e2e_ms:5000"; each at most once, at least one.
absl::StatusOr<Limits> ParseLimits(absl::string_view text);

}  // namespace specwire::cli::bench
