// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "specwire/v1/cluster.pb.h"

namespace specwire::cli {

// What a coordinator told at one moment.
struct Reading {
  absl::Time time;
  v1::ListNodesResponse nodes;
  v1::GetStatsResponse stats;
};

// The coordinator was started anew between the two readings: its counts began
// at 0 again.
bool WasRestarted(const Reading& before, const Reading& now);

// The lines of a frame: requests and tokens, nodes with the shares of their KV
// blocks that sequences hold and that are kept for their prefixes, pairs of
// drafter and verifier. Rates are those between the two readings; "-" without
// an earlier one, or with one of a former life of the coordinator. Plain ASCII.
std::vector<std::string> FrameLines(const Reading& now, const Reading* before);

// What of the lines fits a screen: longer ones are cut, and a last one tells
// how many more there would be. 0: no limit.
std::vector<std::string> Fit(std::vector<std::string> lines,
                             int width,
                             int height);

}  // namespace specwire::cli
