// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "cli/up_plan.h"

// What the commands that start a cluster of their own have in common.

namespace specwire::cli {

// The flags that say what nodes are: engine, threads, draft model, sizes,
// synthetic ones, log level.
void AddNodeFlags(CLI::App* command, UpOptions* options);

// Unsets the environment variables of the command's flags: children get what
// they need as flags, and the same variables would mean something else to them.
void ClearEnvironment(const CLI::App* command);

// The folder in which this program lies, and the others beside it.
absl::StatusOr<std::string> ProgramFolder();

}  // namespace specwire::cli
