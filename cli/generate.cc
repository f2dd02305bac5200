// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/generate_call.h"
#include "cli/input_text.h"
#include "cli/logprobs_view.h"
#include "cli/request_flags.h"
#include "cli/resuming_call.h"
#include "cli/token_printer.h"
#include "cli/trace_view.h"
#include "common/base/status_macros.h"

namespace specwire::cli {
namespace {

struct GenerateFlags {
  ClientFlags client;
  RequestFlags request;
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_ids;
  bool chat = false;
  std::optional<int32_t> logprobs;
  std::optional<int32_t> prompt_logprobs;
  bool echo = false;
  std::optional<int32_t> n;
  bool trace = false;
  std::string marks = "auto";
  bool json = false;
};

absl::StatusOr<v1::GenerateRequest> MakeGenerateRequest(
    const GenerateFlags& flags) {
  SPECWIRE_ASSIGN_OR_RETURN(v1::GenerateRequest request,
                            MakeRequest(flags.request));
  if (flags.prompt.has_value() == flags.prompt_ids.has_value()) {
    return absl::InvalidArgumentError(
        "give either PROMPT (text, - for standard input, @FILE) or "
        "--prompt_ids");
  }
  if (flags.prompt_ids.has_value()) {
    if (flags.chat) {
      return absl::InvalidArgumentError(
          "--chat needs a text: it cannot be combined with --prompt_ids");
    }
    SPECWIRE_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                              ParseTokenIds(*flags.prompt_ids, "--prompt_ids"));
    request.mutable_token_ids()->mutable_ids()->Assign(ids.begin(), ids.end());
  } else {
    SPECWIRE_ASSIGN_OR_RETURN(std::string text,
                              ReadTextArgument(*flags.prompt));
    if (flags.chat) {
      v1::ChatMessage* message = request.mutable_chat()->add_messages();
      message->set_role("user");
      message->set_content(text);
    } else {
      request.set_text(text);
    }
  }
  if (flags.logprobs) request.set_logprobs(*flags.logprobs);
  if (flags.prompt_logprobs)
    request.set_prompt_logprobs(*flags.prompt_logprobs);
  request.set_echo(flags.echo);
  if (flags.n) request.set_n(*flags.n);
  request.set_trace(flags.trace);
  return request;
}

bool WriteLine(const std::string& line) {
  // Generated text may hold NUL characters.
  return std::fwrite(line.data(), 1, line.size(), stdout) == line.size() &&
         std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0;
}

void PrintFigures(const Completion& completion, const Choice& choice) {
  std::fprintf(stderr, "%s\n", FiguresText(completion.started, choice).c_str());
}

bool PrintText(const std::string& text) {
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
}

// What was asked for of a choice besides its text.
bool PrintDetails(const Completion& completion, const Choice& choice) {
  return PrintText(LogprobsText(completion, choice)) &&
         PrintText(TraceText(choice.trace));
}

// Several choices arrive mixed, so each is printed when all have ended.
bool PrintChoices(const Completion& completion, bool is_terminal) {
  if (!PrintText(PromptLogprobsText(completion))) return false;
  for (size_t i = 0; i < completion.choices.size(); ++i) {
    const Choice& choice = completion.choices[i];
    TokenPrinter printer(stdout, Marks::kNone, is_terminal);
    if (!WriteLine(absl::StrCat("--- choice ", i)) ||
        !printer.PrintPlain(completion.prompt_text) ||
        !printer.Finish(choice.text) || !PrintDetails(completion, choice)) {
      return false;
    }
    std::fprintf(stderr, "choice %zu: ", i);
    PrintFigures(completion, choice);
  }
  return true;
}

int RunGenerate(const GenerateFlags& flags) {
  const absl::StatusOr<v1::GenerateRequest> request =
      MakeGenerateRequest(flags);
  if (!request.ok()) {
    return FailUsage(request.status());
  }
  absl::StatusOr<std::vector<std::string>> addresses =
      ParseCoordinators(flags.client);
  if (!addresses.ok()) {
    return FailUsage(addresses.status());
  }
  absl::StatusOr<std::unique_ptr<Client>> client =
      Client::Connect(flags.client);
  if (!client.ok()) {
    return FailConnect(client.status());
  }
  const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  const bool several = flags.n.value_or(1) > 1;
  const bool streams = !flags.json && !several;
  TokenPrinter printer(
      stdout, MarksFromName(flags.marks, is_terminal), is_terminal);
  Completion completion;
  bool printed = false;
  ResumingCall call(*std::move(addresses), *std::move(client), *request);
  const GenerateOutcome outcome =
      call.Run([&](const v1::GenerateResponse& response) {
        completion.Add(response);
        if (!streams) {
          return true;
        }
        if (response.has_prompt()) {
          printed = printed || !response.prompt().text().empty();
          return printer.PrintPlain(response.prompt().text());
        }
        if (response.has_delta()) {
          printed = true;
          return printer.Print(response.delta());
        }
        return !response.has_finished() ||
               printer.Finish(response.finished().text());
      });
  if (!outcome.status.ok()) {
    if (printed && !outcome.abandoned) {
      printer.Finish("");
    }
    return ReportOutcome(outcome);
  }
  completion.num_resumes = call.num_resumes();
  bool written = true;
  if (flags.json) {
    written = WriteLine(DumpJson(ToJson(completion, several)));
  } else if (several) {
    written = PrintChoices(completion, is_terminal);
  } else if (!completion.choices.empty()) {
    written = PrintText(PromptLogprobsText(completion)) &&
              PrintDetails(completion, completion.choices[0]);
    PrintFigures(completion, completion.choices[0]);
    if (completion.num_resumes > 0) {
      std::fprintf(stderr,
                   "resumed %d times after the loss of a coordinator; the "
                   "figures are those of the last part\n",
                   completion.num_resumes);
    }
  }
  if (completion.started.synthetic()) {
    std::fputs(
        "note: the tokens, or their drafts, are made up by a synthetic node; "
        "it is for load tests\n",
        stderr);
  }
  if (!written) {
    PrintError("standard output cannot be written");
    return kExitFailed;
  }
  return kExitDone;
}

}  // namespace

void AddGenerateCommand(CLI::App* app, Runner* runner) {
  CLI::App* command = app->add_subcommand(
      "generate",
      "Continues a prompt and streams the text, accepted draft tokens set "
      "apart. If the coordinator is lost, another address of --coordinator, or "
      "the same one when it is back within seconds, goes on with the text");
  auto flags = std::make_shared<GenerateFlags>();
  AddClientFlags(command, &flags->client);
  command->add_option("PROMPT",
                      flags->prompt,
                      "The text to continue; - reads standard input, @FILE a "
                      "file, both to the last byte (a line break at the end "
                      "is part of the text), @@... is a text that begins with "
                      "@");
  command->add_option(
      "--prompt_ids", flags->prompt_ids, "The prompt as token ids: 1,2,3");
  command->add_flag(
      "--chat", flags->chat, "The prompt is one user message of a chat");
  AddRequestFlags(command, &flags->request);
  command->add_option("--logprobs",
                      flags->logprobs,
                      "Tell the log-probability of each token and of so many "
                      "candidates, 0 to 20: a table behind the text");
  command->add_option("--prompt_logprobs",
                      flags->prompt_logprobs,
                      "The same for the prompt's tokens");
  command->add_flag(
      "--echo", flags->echo, "Repeat the prompt in front of the completion");
  command->add_option("--n",
                      flags->n,
                      "Independent completions, 1 to 16 (default 1); several "
                      "are printed when all have ended");
  command->add_flag("--trace",
                    flags->trace,
                    "Tell for every position what was proposed, by whom, what "
                    "the target chose, both probabilities and what became of "
                    "the proposal, and the times of every verify pass");
  command
      ->add_option("--marks",
                   flags->marks,
                   "How accepted draft tokens of the only completion are set "
                   "apart; auto is color on a terminal and none elsewhere")
      ->check(CLI::IsMember({"auto", "color", "brackets", "none"}))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON object instead of text");
  AddEnvironmentNames(command);
  command->callback(
      [flags, runner] { *runner = [flags] { return RunGenerate(*flags); }; });
}

}  // namespace specwire::cli
