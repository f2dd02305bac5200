// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/node_text.h"

namespace specwire::cli {
namespace {

constexpr double kMaxGraceS = 24 * 3600;

struct DrainFlags {
  ClientFlags client;
  std::string node;
  std::optional<double> grace_s;
};

int RunDrain(const DrainFlags& flags) {
  if (flags.grace_s.has_value() &&
      !(*flags.grace_s >= 0 && *flags.grace_s <= kMaxGraceS)) {
    return FailUsage(
        absl::InvalidArgumentError(absl::StrCat("--grace: ",
                                                *flags.grace_s,
                                                " is not between 0 and ",
                                                kMaxGraceS,
                                                " seconds")));
  }
  v1::DrainNodeRequest request;
  request.set_node(flags.node);
  if (flags.grace_s.has_value()) {
    request.set_grace_ms(static_cast<int64_t>(*flags.grace_s * 1000));
  }
  v1::DrainNodeResponse response;
  return AskOnce(
      flags.client,
      [&](Client* client, grpc::ClientContext* context) {
        return client->cluster()->DrainNode(context, request, &response);
      },
      [&] {
        std::printf(
            "%s (pid %lld) drains: it takes no new work and ends when what "
            "runs there has ended or moved\n",
            Escaped(response.node().registration().name()).c_str(),
            static_cast<long long>(response.node().registration().pid()));
      });
}

}  // namespace

void AddDrainCommand(CLI::App* app, Runner* runner) {
  CLI::App* command = app->add_subcommand(
      "drain", "Has a node take no new work, let go of what it has, and end");
  auto flags = std::make_shared<DrainFlags>();
  AddClientFlags(command, &flags->client);
  command
      ->add_option("NODE", flags->node, "The node's name, as 'nodes' lists it")
      ->required();
  command->add_option("--grace",
                      flags->grace_s,
                      "Seconds that running sequences have to end before they "
                      "move (default: what the node was started with)");
  AddEnvironmentNames(command);
  command->callback(
      [flags, runner] { *runner = [flags] { return RunDrain(*flags); }; });
}

}  // namespace specwire::cli
