// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/chat_line.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/generate_call.h"
#include "cli/input_text.h"
#include "cli/interrupt.h"
#include "cli/request_flags.h"
#include "cli/token_printer.h"
#include "common/text/utf8.h"

namespace specwire::cli {
namespace {

constexpr size_t kMaxLineBytes = size_t{4} << 20;

struct ChatFlags {
  ClientFlags client;
  RequestFlags request;
  std::string system;
  std::string marks = "auto";
};

constexpr char kPrompt[] = "> ";

// Reads lines from standard input, on a terminal behind a prompt. SIGTERM ends
// the input, and so does SIGINT; on a terminal a second one at the same prompt,
// since with the program the conversation is gone.
class LineReader {
 public:
  explicit LineReader(bool is_terminal) : is_terminal_(is_terminal) {}

  // Nothing at the end of the input, or after an interrupt.
  std::optional<std::string> Next() {
    SignalSource signals({SIGINT, SIGTERM});
    bool warned = false;
    if (is_terminal_) std::fputs(kPrompt, stderr);
    for (;;) {
      const size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return line;
      }
      if (at_end_ || buffer_.size() > kMaxLineBytes) {
        break;
      }
      pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {signals.fd(), POLLIN, 0}};
      poll(fds, 2, -1);
      if (const std::optional<int> signal = signals.Take()) {
        if (*signal != SIGINT || !is_terminal_ || warned) return std::nullopt;
        warned = true;
        // The terminal has dropped what was typed.
        std::fprintf(stderr, "\n%s%s", kChatLeaving, kPrompt);
        continue;
      }
      if (fds[0].revents != 0) {
        Fill();
      }
    }
    if (buffer_.empty()) {
      return std::nullopt;
    }
    std::string line;
    line.swap(buffer_);
    return line;
  }

 private:
  void Fill() {
    char bytes[4096];
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (count > 0) {
      buffer_.append(bytes, static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      at_end_ = true;
    }
  }

  const bool is_terminal_;
  std::string buffer_;
  bool at_end_ = false;
};

// A conversation and the terminal that it happens on.
class ChatSession {
 public:
  ChatSession(const ChatFlags& flags,
              v1::GenerateRequest request,
              Client* client)
      : flags_(flags), request_(std::move(request)), client_(client) {
    Reset();
  }

  int Run() {
    const bool is_terminal = isatty(STDIN_FILENO) == 1;
    if (is_terminal) std::fputs(kChatGreeting, stderr);
    LineReader reader(is_terminal);
    for (;;) {
      const std::optional<std::string> line = reader.Next();
      if (!line.has_value()) {
        if (is_terminal) {
          std::fprintf(stderr, "\n");
        }
        return exit_code_;
      }
      const ChatLine asked = ParseChatLine(*line);
      if (asked.kind == ChatLine::Kind::kQuit) return exit_code_;
      if (!Do(asked)) return kExitFailed;
    }
  }

 private:
  // Returns false once the output is gone.
  bool Do(const ChatLine& line) {
    switch (line.kind) {
      case ChatLine::Kind::kEmpty:
      case ChatLine::Kind::kQuit:
        return true;
      case ChatLine::Kind::kHelp:
        std::fputs(kChatHelp, stderr);
        return true;
      case ChatLine::Kind::kNew:
        Reset();
        return true;
      case ChatLine::Kind::kUnknown:
        PrintError(absl::StrCat(line.text,
                                " is no command: /help lists them, and a "
                                "second slash at the front sends the line"));
        return true;
      case ChatLine::Kind::kMessage:
        break;
    }
    if (IsValidUtf8(line.text)) return Answer(line.text);
    PrintError("the line is not UTF-8");
    return true;
  }

  void Reset() {
    request_.mutable_chat()->clear_messages();
    if (!flags_.system.empty()) {
      AddMessage("system", flags_.system);
    }
  }

  void AddMessage(const std::string& role, absl::string_view content) {
    v1::ChatMessage* message = request_.mutable_chat()->add_messages();
    message->set_role(role);
    message->set_content(std::string(content));
  }

  // Sends the conversation with one more message. A failed turn is forgotten,
  // so that the user can try again. Returns false once the output is gone.
  bool Answer(absl::string_view text) {
    AddMessage("user", text);
    const bool is_terminal = isatty(STDOUT_FILENO) == 1;
    TokenPrinter printer(
        stdout, MarksFromName(flags_.marks, is_terminal), is_terminal);
    Completion completion;
    const GenerateOutcome outcome = CallGenerate(
        client_, request_, [&](const v1::GenerateResponse& response) {
          completion.Add(response);
          return !response.has_delta() || printer.Print(response.delta());
        });
    const bool started = !completion.choices.empty();
    if (started && !outcome.abandoned) {
      printer.Finish(completion.choices[0].finished.text());
    }
    // What the user cut off stays part of the conversation, as it was read.
    if (outcome.status.ok() || (outcome.interrupted && started)) {
      AddMessage("assistant", completion.choices[0].text);
      if (outcome.status.ok()) {
        std::fprintf(
            stderr,
            "%s\n",
            FiguresText(completion.started, completion.choices[0]).c_str());
      }
      exit_code_ = kExitDone;
      return true;
    }
    request_.mutable_chat()->mutable_messages()->RemoveLast();
    exit_code_ = ReportOutcome(outcome);
    return !outcome.abandoned;
  }

  const ChatFlags& flags_;
  v1::GenerateRequest request_;
  Client* const client_;
  // Of the last turn; a mistyped command is none.
  int exit_code_ = kExitDone;
};

int RunChat(const ChatFlags& flags) {
  absl::StatusOr<v1::GenerateRequest> request = MakeRequest(flags.request);
  if (!request.ok()) {
    return FailUsage(request.status());
  }
  if (!IsValidUtf8(flags.system)) {
    return FailUsage(
        absl::InvalidArgumentError("--system: the text is not UTF-8"));
  }
  const absl::StatusOr<std::unique_ptr<Client>> client =
      Client::Connect(flags.client);
  if (!client.ok()) {
    return FailConnect(client.status());
  }
  return ChatSession(flags, *std::move(request), client->get()).Run();
}

}  // namespace

void AddChatCommand(CLI::App* app, Runner* runner) {
  CLI::App* command = app->add_subcommand(
      "chat",
      "A conversation: one message a line, the history is kept; /help lists "
      "the commands");
  auto flags = std::make_shared<ChatFlags>();
  AddClientFlags(command, &flags->client);
  command->add_option("--system", flags->system, "Text of a system message");
  AddRequestFlags(command, &flags->request);
  command
      ->add_option("--marks",
                   flags->marks,
                   "How accepted draft tokens are set apart; auto is color "
                   "on a terminal and none elsewhere")
      ->check(CLI::IsMember({"auto", "color", "brackets", "none"}))
      ->capture_default_str();
  AddEnvironmentNames(command);
  command->callback(
      [flags, runner] { *runner = [flags] { return RunChat(*flags); }; });
}

}  // namespace specwire::cli
