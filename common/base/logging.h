// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace specwire {

// Severity of a log line, least first.
enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Sets the least severity that is written (default kInfo) and the name of the
// program that starts every line. Call once, early in main().
void InitLogging(absl::string_view program, LogLevel level);

// Parses "debug", "info", "warning" or "error"; returns false for others.
bool ParseLogLevel(absl::string_view name, LogLevel* level);

// Writes one line to standard error, as Printable has it. Any thread may.
void LogLine(LogLevel level, absl::string_view message);
bool LogEnabled(LogLevel level);

}  // namespace specwire

// SPECWIRE_LOG(Info, "node ", id, " joined"): the arguments are StrCat's, and
// are evaluated only if the level is on. Never log prompts or completions at
// kInfo or above, nor anything per token.
#define SPECWIRE_LOG(level, ...)                                  \
  do {                                                            \
    if (::specwire::LogEnabled(::specwire::LogLevel::k##level)) { \
      ::specwire::LogLine(::specwire::LogLevel::k##level,         \
                          absl::StrCat(__VA_ARGS__));             \
    }                                                             \
  } while (false)
