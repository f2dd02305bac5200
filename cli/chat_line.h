// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace specwire::cli {

// What a line of `specwire chat` asks for.
struct ChatLine {
  enum class Kind {
    // Nothing.
    kEmpty,
    // A message to the model.
    kMessage,
    // /help
    kHelp,
    // /new: forget the conversation.
    kNew,
    // /quit or /exit
    kQuit,
    // Any other word behind a slash.
    kUnknown,
  };
  Kind kind;
  // The message, or the unknown word with its slash.
  std::string text;
};

// A line whose first character is a slash is a command; "//" at the front sends
// the line from the second slash on. White space around a line is of no
// account.
ChatLine ParseChatLine(absl::string_view line);

// What /help says, a line for each command, the line that a conversation begins
// with, and the one that the first Ctrl-C at a prompt gets.
inline constexpr char kChatHelp[] =
    "/help   this list\n"
    "/new    forgets the conversation\n"
    "/quit   ends, as do /exit and Ctrl-D\n"
    "//...   sends a line that begins with a slash\n"
    "Ctrl-C  cancels a reply; at the prompt, twice, it ends\n";
inline constexpr char kChatGreeting[] =
    "/help lists the commands: /new forgets the conversation, /quit or Ctrl-D "
    "ends; Ctrl-C cancels a reply\n";
inline constexpr char kChatLeaving[] = "press Ctrl-C again or /quit to leave\n";

}  // namespace specwire::cli
