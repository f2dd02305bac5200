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

// Draft tokens in a proposal; nothing: the coordinator's choice.
using RunLength = std::optional<int32_t>;
// "4" or "auto".
std::string RunLengthText(RunLength run_length);

// Where the round trips of a sweep lie.
enum class StretchedLink {
  // Between coordinator and draft node.
  kDraft,
  // Between coordinator and verifier.
  kVerifier,
  // Half on each.
  kBoth,
};

// Over what a sweep goes: every combination is a point.
struct SweepOptions {
  // kLocalDrafter: the verifier's own, without a draft node.
  std::vector<std::string> drafters = {"hybrid", "suffix"};
  std::vector<float> temperatures = {0};
  // In plain steps, ascending.
  std::vector<double> round_trips = {0, 0.2};
  std::vector<RunLength> run_lengths = {1, 4, 8, std::nullopt};
  StretchedLink link = StretchedLink::kDraft;
  // Greatest jitter of each direction, in its delays.
  double jitter = 0;
};

// The same as flags spell it: lists with commas.
struct SweepTexts {
  std::string drafters = "hybrid,suffix";
  std::string temperatures = "0";
  std::string round_trips = "0,0.2";
  std::string run_lengths = "1,4,8,auto";
  std::string link = "draft";
  double jitter = 0;
};
// Sorts round trips; other lists keep their order. INVALID_ARGUMENT, naming the
// flag, if an entry is malformed, out of range or there twice.
absl::StatusOr<SweepOptions> ParseSweep(const SweepTexts& texts);

// One combination, for a given drafter and temperature.
struct SweepPoint {
  double round_trip = 0;
  RunLength run_length;
};
// In the order in which they are run: at each round trip fixed run lengths
// first, longest first.
std::vector<SweepPoint> PointsOf(const SweepOptions& options);

}  // namespace specwire::cli::bench
