// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_join.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/input_text.h"

namespace specwire::cli {
namespace {

struct TokenizeFlags {
  ClientFlags client;
  std::string model;
  std::string text;
  bool plain = false;
  bool json = false;
};

int RunTokenize(const TokenizeFlags& flags) {
  const absl::StatusOr<std::string> text = ReadTextArgument(flags.text);
  if (!text.ok()) {
    return FailUsage(text.status());
  }
  v1::TokenizeRequest request;
  request.set_model(flags.model);
  request.set_text(*text);
  request.set_plain(flags.plain);
  v1::TokenizeResponse response;
  return AskOnce(
      flags.client,
      [&](Client* client, grpc::ClientContext* context) {
        return client->generation()->Tokenize(context, request, &response);
      },
      [&] {
        std::string line = absl::StrJoin(response.token_ids(), " ");
        if (flags.json) {
          nlohmann::ordered_json json;
          json["token_ids"] = response.token_ids();
          line = DumpJson(json);
        }
        std::printf("%s\n", line.c_str());
      });
}

}  // namespace

void AddTokenizeCommand(CLI::App* app, Runner* runner) {
  CLI::App* command =
      app->add_subcommand("tokenize", "Prints the token ids of a text");
  auto flags = std::make_shared<TokenizeFlags>();
  AddClientFlags(command, &flags->client);
  command
      ->add_option("TEXT",
                   flags->text,
                   "The text; - reads standard input, @FILE a file, both to "
                   "the last byte (a line break at the end is part of the "
                   "text), @@... is a text that begins with @")
      ->required();
  command
      ->add_option("--model",
                   flags->model,
                   "Name of the model; needed only if several are served")
      ->envname("SPECWIRE_MODEL_NAME");
  command->add_flag(
      "--plain", flags->plain, "Special-token text is plain text");
  command->add_flag("--json", flags->json, "{\"token_ids\": [...]}");
  AddEnvironmentNames(command);
  command->callback(
      [flags, runner] { *runner = [flags] { return RunTokenize(*flags); }; });
}

}  // namespace specwire::cli
