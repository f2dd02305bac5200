// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/text/printable.h"

namespace specwire::cli {

void AddEnvironmentNames(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    if (option->get_lnames().empty() || !option->get_envname().empty()) {
      continue;
    }
    const std::string& name = option->get_lnames()[0];
    if (name == "help" || name == "version" || name == "config") {
      continue;
    }
    option->envname(absl::StrCat("SPECWIRE_", absl::AsciiStrToUpper(name)));
  }
}

void PrintError(absl::string_view message) {
  std::fprintf(stderr, "specwire: %s\n", ErrorLine(message).c_str());
}

int FinishOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return kExitDone;
  PrintError("cannot write standard output");
  return kExitFailed;
}

int FailUsage(const absl::Status& status) {
  PrintError(status.message());
  return kExitUsage;
}

}  // namespace specwire::cli
