// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/client.h"
#include "cli/command.h"

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
  const absl::StatusOr<std::unique_ptr<Client>> client =
      Client::Connect(flags.client);
  if (!client.ok()) return FailConnect(client.status());
  v1::DrainNodeRequest request;
  request.set_node(flags.node);
  if (flags.grace_s.has_value()) {
    request.set_grace_ms(static_cast<int64_t>(*flags.grace_s * 1000));
  }
  grpc::ClientContext context;
  SetTimeout(kAnswerTimeout, &context);
  v1::DrainNodeResponse response;
  const grpc::Status status =
      (*client)->cluster()->DrainNode(&context, request, &response);
  if (!status.ok()) return FailCall(status);
  std::printf(
      "%s (pid %lld) drains: it takes no new work and ends when what "
      "runs there has ended or moved\n",
      response.node().registration().name().c_str(),
      static_cast<long long>(response.node().registration().pid()));
  return FinishOutput();
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
