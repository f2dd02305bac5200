// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/time/time.h"
#include "cli/bench/dataset.h"
#include "cli/bench/options.h"
#include "cli/bench/sweep_options.h"
#include "cli/bench/sweep_result.h"
#include "cli/up_plan.h"

namespace specwire::cli::bench {

// Runs all points, each as `bench` runs both modes: plain and speculative in
// turns. A fixed run length is lock-step with the drafter by name:
// max_draft_tokens and window of that length and patience without limit, which
// leaves the coordinator no choice. Where the choice is its own it also decides
// who drafts, the draft node or the verifier for itself. What is asked of
// requests beyond the grid comes from `options`, of the nodes from `up`.
// REQUIRES: as Supervisor and RunBlocks; CheckOptions(options) is OK.
Sweep RunSweep(const SweepOptions& grid,
               const Options& options,
               const std::vector<Question>& questions,
               const UpOptions& up,
               absl::Duration ready_timeout);

}  // namespace specwire::cli::bench
