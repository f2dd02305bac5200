// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "common/base/logging.h"
#include "common/base/signals.h"
#include "common/base/standard_streams.h"
#include "common/rpc/library_logs.h"

namespace specwire::cli {
namespace {

int Main(int argc, char** argv) {
  ReserveStandardStreams();
  BlockShutdownSignals();
  InitLogging("specwire", LogLevel::kInfo);
  RouteLibraryLogs();
  CLI::App app(
      "Specwire: lossless speculative decoding. Exit codes: 0 done, 1 the "
      "request failed, 2 bad usage, 3 could not reach the cluster.",
      "specwire");
  app.set_version_flag("--version",
                       std::string("specwire ") + SPECWIRE_VERSION);
  app.set_config("--config", "", "Read flags from a file, [command] sections");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.require_subcommand(1);
  app.fallthrough();

  Runner runner;
  AddUpCommand(&app, &runner);
  AddGenerateCommand(&app, &runner);
  AddChatCommand(&app, &runner);
  AddScoreCommand(&app, &runner);
  AddTokenizeCommand(&app, &runner);
  AddInspectCommand(&app, &runner);
  AddNodesCommand(&app, &runner);
  AddDrainCommand(&app, &runner);
  AddStatsCommand(&app, &runner);
  AddTopCommand(&app, &runner);
  AddBenchCommand(&app, &runner);

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::string command = "specwire";
    if (app.get_subcommands().empty() && !app.remaining().empty()) {
      PrintError(absl::StrCat(
          "'", app.remaining()[0], "' is no command; see specwire --help"));
      return kExitUsage;
    }
    if (!app.get_subcommands().empty()) {
      absl::StrAppend(&command, " ", app.get_subcommands()[0]->get_name());
    }
    PrintError(absl::StrCat(e.what(), " (see ", command, " --help)"));
    return kExitUsage;
  }
  return runner ? runner() : kExitUsage;
}

}  // namespace
}  // namespace specwire::cli

int main(int argc, char** argv) { return specwire::cli::Main(argc, argv); }
