// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/input_text.h"
#include "cli/interrupt.h"
#include "cli/request_flags.h"
#include "cli/score_view.h"
#include "common/base/status_macros.h"

namespace specwire::cli {
namespace {

struct ScoreFlags {
  ClientFlags client;
  std::string model;
  std::optional<std::string> text;
  std::optional<std::string> token_ids;
  int32_t window = 0;
  int32_t stride = 0;
  std::optional<int32_t> top;
  bool json = false;
};

absl::StatusOr<v1::ScoreRequest> MakeScoreRequest(const ScoreFlags& flags) {
  if (flags.text.has_value() == flags.token_ids.has_value()) {
    return absl::InvalidArgumentError(
        "give either TEXT (a text, - for standard input, @FILE) or "
        "--token_ids");
  }
  v1::ScoreRequest request;
  request.set_model(flags.model);
  if (flags.text.has_value()) {
    SPECWIRE_ASSIGN_OR_RETURN(std::string text, ReadTextArgument(*flags.text));
    request.set_text(std::move(text));
  } else {
    SPECWIRE_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                              ParseTokenIds(*flags.token_ids, "--token_ids"));
    request.mutable_token_ids()->mutable_ids()->Assign(ids.begin(), ids.end());
  }
  request.set_window(flags.window);
  request.set_stride(flags.stride);
  request.set_top(flags.top.value_or(0));
  request.set_token_bytes(!flags.json);
  return request;
}

int RunScore(const ScoreFlags& flags) {
  const absl::StatusOr<v1::ScoreRequest> request = MakeScoreRequest(flags);
  if (!request.ok()) {
    return FailUsage(request.status());
  }
  const absl::StatusOr<std::unique_ptr<Client>> client =
      Client::Connect(flags.client);
  if (!client.ok()) {
    return FailConnect(client.status());
  }
  // No deadline: a long text is no fault.
  grpc::ClientContext context;
  v1::ScoreResponse response;
  grpc::Status status;
  {
    const OnInterrupt interrupt([&context] { context.TryCancel(); });
    status = (*client)->generation()->Score(&context, *request, &response);
    if (!status.ok() && interrupt.interrupted()) {
      PrintError("cancelled");
      return kExitInterrupted;
    }
  }
  if (!status.ok()) {
    return FailCall(status);
  }
  const std::string output =
      flags.json ? DumpJson(ScoreJson(response, flags.top.has_value())) + '\n'
                 : ScoreText(response);
  std::fwrite(output.data(), 1, output.size(), stdout);
  return FinishOutput();
}

}  // namespace

void AddScoreCommand(CLI::App* app, Runner* runner) {
  CLI::App* command = app->add_subcommand(
      "score",
      "Prints how likely each token of a text is to the model, and the "
      "perplexity: exp(mean negative log-likelihood of the scored tokens)");
  auto flags = std::make_shared<ScoreFlags>();
  AddClientFlags(command, &flags->client);
  command->add_option("TEXT",
                      flags->text,
                      "The text; - reads standard input, @FILE a file, both to "
                      "the last byte (a line break at the end is part of the "
                      "text), @@... is a text that begins with @");
  command->add_option(
      "--token_ids", flags->token_ids, "The text as token ids: 1,2,3");
  command
      ->add_option("--model",
                   flags->model,
                   "Name of the model; needed only if several are served")
      ->envname("SPECWIRE_MODEL_NAME");
  // generate has a --window too, which means something else.
  command
      ->add_option("--window",
                   flags->window,
                   "Score in windows of so many tokens (Hugging Face's "
                   "max_length); 0: one over all")
      ->envname("SPECWIRE_SCORE_WINDOW");
  command
      ->add_option("--stride",
                   flags->stride,
                   "Tokens between the starts of two windows; 0: half of the "
                   "window")
      ->envname("SPECWIRE_SCORE_STRIDE");
  command->add_option("--top",
                      flags->top,
                      "Report so many candidates for each position, 0 to 20");
  command->add_flag("--json",
                    flags->json,
                    "{\"token_ids\", \"logprobs\", \"perplexity\", "
                    "\"num_scored_tokens\"}");
  AddEnvironmentNames(command);
  command->callback(
      [flags, runner] { *runner = [flags] { return RunScore(*flags); }; });
}

}  // namespace specwire::cli
