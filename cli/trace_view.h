// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "specwire/v1/generation.pb.h"

namespace specwire::cli {

// A trace for people: a line and a table for each pass, with a row for each
// position and for each draft token that nothing was chosen for. Plain ASCII;
// whatever else a token or a name holds is escaped. Ends with a line break;
// empty for an empty trace.
std::string TraceText(const std::vector<v1::PassTrace>& trace);

// The same as data, a list of passes. What is not known is null.
nlohmann::ordered_json TraceJson(const std::vector<v1::PassTrace>& trace);

// "accepted", "rejected", "discarded", "overlapped", "stale", "trimmed" or
// "unused".
absl::string_view OutcomeName(v1::DraftOutcome outcome);

}  // namespace specwire::cli
