// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cli/model_card.h"
#include "nlohmann/json.hpp"

namespace specwire::cli {

// What `inspect` prints of a model.

// Sequence lengths for which it tells the memory, ascending: `max_model_len`
// alone, or if that is 0 some usual ones and the model's own.
std::vector<int> ShownLengths(const ModelConfig& config, int max_model_len);

// What the configuration turns on beside the plain form of a llama, for people:
// "rope_theta 100000", "tied head".
std::vector<std::string> Features(const ModelCard& card);

// Lines, each ended by a line break. Nothing in them steers a terminal.
std::string InspectText(const ModelCard& card, absl::Span<const int> lengths);

nlohmann::ordered_json InspectJson(const ModelCard& card,
                                   absl::Span<const int> lengths);

}  // namespace specwire::cli
