// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/node_text.h"
#include "cli/table.h"

namespace specwire::cli {
namespace {

using Json = nlohmann::ordered_json;
using NamedCounts = google::protobuf::RepeatedPtrField<v1::NamedCount>;

struct StatsFlags {
  ClientFlags client;
  bool json = false;
};

Json CountsJson(const NamedCounts& counts) {
  Json json = Json::object();
  for (const v1::NamedCount& count : counts) json[count.name()] = count.count();
  return json;
}

// What GetStats does not tell of a sum is left out.
Json SumJson(const v1::SpeculationStats& stats, bool is_total) {
  Json json = StatsJson(stats);
  for (const char* name : {"rule",
                           "num_spec_tokens",
                           "drafter",
                           "predicted_speedup",
                           "measured_speedup"}) {
    json.erase(name);
  }
  if (!is_total) {
    json.erase("acceptance_histogram");
    json.erase("num_passes");
  }
  return json;
}

Json ResponseJson(const v1::GetStatsResponse& response) {
  Json json = {
      {"requests", CountsJson(response.requests())},
      {"failures", CountsJson(response.failures())},
      {"usage",
       {{"prompt_tokens", response.usage().prompt_tokens()},
        {"completion_tokens", response.usage().completion_tokens()}}},
      {"speculative_decoding", SumJson(response.total(), /*is_total=*/true)}};
  Json& pairs = json["pairs"] = Json::array();
  for (const v1::PairStats& pair : response.pairs()) {
    pairs.push_back(
        {{"draft_node", pair.draft_node()},
         {"verifier_node", pair.verifier_node()},
         {"model", pair.model()},
         {"speculative_decoding", SumJson(pair.stats(), /*is_total=*/false)}});
  }
  return json;
}

std::string CountsText(const NamedCounts& counts) {
  std::string text;
  for (const v1::NamedCount& count : counts) {
    absl::StrAppend(&text,
                    text.empty() ? "" : ", ",
                    count.count(),
                    " ",
                    Escaped(count.name()));
  }
  return text.empty() ? "none" : text;
}

TableRow StatsRow(const std::string& draft_node,
                  const std::string& verifier_node,
                  const v1::SpeculationStats& stats) {
  return {draft_node,
          verifier_node,
          absl::StrCat(stats.num_spec_steps()),
          absl::StrCat(stats.num_drafted_tokens()),
          absl::StrCat(stats.num_draft_tokens()),
          absl::StrCat(stats.num_accepted_draft_tokens()),
          absl::StrFormat("%.1f %%", 100 * stats.draft_acceptance_rate()),
          absl::StrFormat("%.2f", stats.mean_acceptance_length()),
          absl::StrCat(stats.num_overlapped_tokens()),
          absl::StrCat(stats.num_stale_tokens()),
          absl::StrCat(stats.num_trimmed_tokens()),
          absl::StrCat(stats.num_unused_tokens())};
}

void PrintStats(const v1::GetStatsResponse& response) {
  std::printf("requests  %s; failed: %s\n",
              CountsText(response.requests()).c_str(),
              CountsText(response.failures()).c_str());
  std::printf(
      "tokens    %d of prompts, %d of completions, %lld verify passes\n",
      response.usage().prompt_tokens(),
      response.usage().completion_tokens(),
      static_cast<long long>(response.total().num_passes()));
  std::vector<TableRow> rows = {{"DRAFT NODE",
                                 "VERIFIER",
                                 "STEPS",
                                 "DRAFTED",
                                 "VERIFIED",
                                 "ACCEPTED",
                                 "RATE",
                                 "LENGTH",
                                 "OVERLAPPED",
                                 "STALE",
                                 "TRIMMED",
                                 "UNUSED"}};
  for (const v1::PairStats& pair : response.pairs()) {
    rows.push_back(StatsRow(Escaped(pair.draft_node()),
                            Escaped(pair.verifier_node()),
                            pair.stats()));
  }
  rows.push_back(StatsRow("total", "", response.total()));
  std::fputs(TableText(rows).c_str(), stdout);
}

int RunStats(const StatsFlags& flags) {
  v1::GetStatsResponse response;
  return AskOnce(
      flags.client,
      [&](Client* client, grpc::ClientContext* context) {
        return client->cluster()->GetStats(context, {}, &response);
      },
      [&] {
        if (flags.json) {
          std::printf("%s\n", DumpJson(ResponseJson(response)).c_str());
        } else {
          PrintStats(response);
        }
      });
}

}  // namespace

void AddStatsCommand(CLI::App* app, Runner* runner) {
  CLI::App* command = app->add_subcommand(
      "stats",
      "What one coordinator has counted since it started: requests, tokens, "
      "acceptance by draft node and verifier");
  auto flags = std::make_shared<StatsFlags>();
  AddClientFlags(command, &flags->client);
  command->add_flag("--json", flags->json, "One JSON object instead of text");
  AddEnvironmentNames(command);
  command->callback(
      [flags, runner] { *runner = [flags] { return RunStats(*flags); }; });
}

}  // namespace specwire::cli
