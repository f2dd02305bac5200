// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/completion.h"
#include "specwire/v1/types.pb.h"

namespace specwire::cli {

// The candidates of a position, "ID PROBABILITY" each, commas between them.
std::string CandidatesText(const v1::PositionLogprobs& entry);

// What `generate --logprobs` and --prompt_logprobs show of the prompt: a table
// with a line for each of its tokens. Empty if that was not asked for. Nothing
// in it steers a terminal.
std::string PromptLogprobsText(const Completion& completion);

// The same of a choice, with the text that came with each token.
std::string LogprobsText(const Completion& completion, const Choice& choice);

}  // namespace specwire::cli
