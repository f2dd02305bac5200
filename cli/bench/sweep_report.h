// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/bench/options.h"
#include "cli/bench/plot.h"
#include "cli/bench/sweep_options.h"
#include "cli/bench/sweep_result.h"
#include "nlohmann/json.hpp"

// From the points of a sweep to what is printed. Pure functions.

namespace specwire::cli::bench {

std::string SweepText(const Sweep& sweep);
nlohmann::ordered_json SweepJson(const Sweep& sweep,
                                 const Options& options,
                                 const SweepOptions& grid);

// Speed-up by round trip, at the coordinator's run length or, if the sweep has
// none, the first of the grid; and by run length at the shortest round trip.
// For each drafter and temperature one line as measured and one by the model.
std::vector<Plot> SweepPlots(const Sweep& sweep, const SweepOptions& grid);

}  // namespace specwire::cli::bench
