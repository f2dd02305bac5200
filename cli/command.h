// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace specwire::cli {

// How the program ends; scripts rely on these.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitUnreachable = 3;
// What a shell reports for a program that Ctrl-C ended.
inline constexpr int kExitInterrupted = 130;

// What the chosen subcommand does once all flags are parsed; returns the exit
// code.
using Runner = std::function<int()>;

// Each adds one subcommand to `app`; its callback sets `runner`. Both must
// outlive the parsing.
void AddUpCommand(CLI::App* app, Runner* runner);
void AddGenerateCommand(CLI::App* app, Runner* runner);
void AddChatCommand(CLI::App* app, Runner* runner);
void AddScoreCommand(CLI::App* app, Runner* runner);
void AddTokenizeCommand(CLI::App* app, Runner* runner);
void AddInspectCommand(CLI::App* app, Runner* runner);
void AddNodesCommand(CLI::App* app, Runner* runner);
void AddDrainCommand(CLI::App* app, Runner* runner);
void AddStatsCommand(CLI::App* app, Runner* runner);
void AddTopCommand(CLI::App* app, Runner* runner);
void AddBenchCommand(CLI::App* app, Runner* runner);

// Gives every flag of `app` that has no environment variable yet the variable
// SPECWIRE_FLAG. Flags on the command line come first, then a config file, then
// the environment.
void AddEnvironmentNames(CLI::App* app);

// Writes one line "specwire: ..." to standard error: ErrorLine(message).
void PrintError(absl::string_view message);

// The last thing a command that prints does: kExitDone if all of standard
// output has been written, else an error and kExitFailed.
int FinishOutput();

// Prints the error and returns kExitUsage.
int FailUsage(const absl::Status& status);

}  // namespace specwire::cli
