// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "bench/simulate/costs.h"
#include "bench/simulate/link.h"
#include "bench/simulate/trace.h"
#include "coordinator/request_machine.h"

namespace specwire::simulate {

// How requests speculate.
struct Policy {
  enum class Kind { kPlain, kFixed, kAdaptive };
  Kind kind = Kind::kAdaptive;
  // Fixed: as they are. Adaptive: what a request starts from, or is bounded by.
  int run_length = 4;
  int window = 8;
  absl::Duration patience = absl::Milliseconds(10);
  // Who drafts: draft nodes, and the verifier for itself, up to so many tokens,
  // where a trace has local drafts. Fixed: one of the two.
  bool draft_nodes = true;
  int local_run_length = kMaxTracedRun;
};

// A cluster and its load.
struct Settings {
  // A pass of one row.
  absl::Duration plain = absl::Microseconds(2500);
  VerifyCosts verify;
  DraftCosts draft;
  LinkDelay verifier_link = {.one_way = absl::Microseconds(150)};
  LinkDelay drafter_link = {.one_way = absl::Microseconds(150)};
  int num_verifiers = 1;
  int num_draft_nodes = 1;
  // Requests at once; a new one starts when one ends.
  int concurrency = 1;
  uint64_t seed = 1;
  Policy policy;
  // Of an answer that a drafter owes.
  absl::Duration drafter_deadline = absl::Seconds(2);
  // What one adaptive request learns is where the next one starts.
  bool priors = true;
};

// What became of a request.
struct RequestResult {
  // Its trace.
  size_t trace = 0;
  absl::Time start;
  absl::Time end;
  int64_t num_tokens = 0;
  coordinator::SpeculationFigures figures;
  // When it had how many tokens of its completion.
  std::vector<std::pair<absl::Time, int64_t>> progress;

  absl::Duration duration() const { return end - start; }
};

// Runs a request for each entry of `order`, in that order, each the number of a
// trace, through the coordinator's own RequestMachine, the drafters' DraftPath
// and the verifiers' VerifySequence and planner, over links with delays, in
// virtual time. A pure function of its arguments. INTERNAL if a request does
// not end with its trace's text, or a machine is told what it does not take.
// REQUIRES: numbers in the settings are positive, order names traces.
absl::StatusOr<std::vector<RequestResult>> Simulate(
    const Settings& settings,
    const std::vector<Trace>& traces,
    absl::Span<const size_t> order);

}  // namespace specwire::simulate
