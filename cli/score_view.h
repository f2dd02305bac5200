// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "nlohmann/json.hpp"
#include "specwire/v1/generation.pb.h"

namespace specwire::cli {

// What `score --json` prints: token_ids, logprobs (null for a token that was
// not scored), perplexity (null if infinite), num_scored_tokens; and "top" if
// candidates were asked for.
nlohmann::ordered_json ScoreJson(const v1::ScoreResponse& score, bool top);

// A line for each token (position, id, probability, surprisal in bits, a bar of
// that length, the token, candidates if asked for) and one with the perplexity,
// each ended by a line break. Nothing in it steers a terminal.
std::string ScoreText(const v1::ScoreResponse& score);

}  // namespace specwire::cli
