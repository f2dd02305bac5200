// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/node_text.h"
#include "cli/table.h"

namespace specwire::cli {
namespace {

struct NodesFlags {
  ClientFlags client;
  bool json = false;
};

nlohmann::ordered_json NodesJson(const v1::ListNodesResponse& response) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const v1::Node& node : response.nodes()) {
    // What has left holds nothing.
    const v1::NodeLoad load = IsGone(node) ? v1::NodeLoad() : node.load();
    json.push_back({{"name", node.registration().name()},
                    {"role", RoleName(node)},
                    {"state", StateName(node)},
                    {"pid", node.registration().pid()},
                    {"address", node.registration().address()},
                    {"num_sequences", load.num_sequences()},
                    {"reason", node.reason()},
                    {"serves", Serves(node)},
                    {"synthetic", IsSynthetic(node)},
                    {"engine", node.model().engine()},
                    {"model_digest", node.model().model_digest()},
                    {"kv_blocks_used", load.kv_blocks_used()},
                    {"kv_blocks_total", load.kv_blocks_total()},
                    {"kv_blocks_cached", load.kv_blocks_cached()},
                    {"num_waiting", load.num_waiting()}});
  }
  return json;
}

void PrintTable(const v1::ListNodesResponse& response) {
  std::vector<TableRow> rows = {{"NAME",
                                 "ROLE",
                                 "STATE",
                                 "PID",
                                 "ADDRESS",
                                 "SEQUENCES",
                                 "SERVES",
                                 "REASON"}};
  for (const v1::Node& node : response.nodes()) {
    rows.push_back({Escaped(node.registration().name()),
                    RoleName(node),
                    StateName(node),
                    absl::StrCat(node.registration().pid()),
                    Escaped(node.registration().address()),
                    LoadText(node, node.load().num_sequences()),
                    Escaped(Serves(node)),
                    Escaped(node.reason())});
  }
  std::fputs(TableText(rows).c_str(), stdout);
}

int RunNodes(const NodesFlags& flags) {
  v1::ListNodesResponse response;
  return AskOnce(
      flags.client,
      [&](Client* client, grpc::ClientContext* context) {
        return client->cluster()->ListNodes(context, {}, &response);
      },
      [&] {
        if (flags.json) {
          std::printf("%s\n", DumpJson(NodesJson(response)).c_str());
        } else {
          PrintTable(response);
        }
      });
}

}  // namespace

void AddNodesCommand(CLI::App* app, Runner* runner) {
  CLI::App* command = app->add_subcommand(
      "nodes", "Lists the nodes of the cluster and their states");
  auto flags = std::make_shared<NodesFlags>();
  AddClientFlags(command, &flags->client);
  command->add_flag("--json", flags->json, "A JSON list instead of a table");
  AddEnvironmentNames(command);
  command->callback(
      [flags, runner] { *runner = [flags] { return RunNodes(*flags); }; });
}

}  // namespace specwire::cli
