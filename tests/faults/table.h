// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/faults/cell.h"
#include "tests/faults/episode.h"

namespace specwire::faults {

struct Outcome {
  Cell cell;
  Verdict verdict;
};

// One line: how many cells of how many were survived, and what went wrong.
std::string Summary(const std::vector<Outcome>& outcomes, uint64_t seed);

// In Markdown: for each target and fault the phases that were survived, of
// those that were run; below it, the cells that say nothing, and why.
std::string MakeTable(const std::vector<Outcome>& outcomes, uint64_t seed);

}  // namespace specwire::faults
