// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"

namespace specwire::cli {
namespace {

constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kClearLine[] = "\x1b[K";
constexpr char kClearBelow[] = "\x1b[J";

bool Write(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

}  // namespace

Terminal::Terminal() {
  termios now;
  if (isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &now) == 0) {
    saved_ = now;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    // Whoever is stopped leaves the terminal as it is.
    now.c_cc[VSUSP] = _POSIX_VDISABLE;
    // A read takes what is there, if anything is.
    now.c_cc[VMIN] = 0;
    now.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &now);
  }
  Write(kEnter);
}

Terminal::~Terminal() {
  Write(kLeave);
  if (saved_.has_value()) tcsetattr(STDIN_FILENO, TCSANOW, &*saved_);
}

Terminal::Size Terminal::size() const {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 ||
      size.ws_row == 0) {
    return {};
  }
  return {.width = size.ws_col, .height = size.ws_row};
}

bool Terminal::Show(const std::vector<std::string>& lines) {
  std::string text = kHome;
  for (size_t i = 0; i < lines.size(); ++i) {
    // No line break behind the last line: it would scroll.
    absl::StrAppend(&text, i == 0 ? "" : "\r\n", lines[i], kClearLine);
  }
  return Write(absl::StrCat(text, kClearBelow));
}

std::string Terminal::TakeKeys() {
  if (!saved_.has_value()) return "";
  char keys[64];
  const ssize_t count = read(STDIN_FILENO, keys, sizeof(keys));
  return count > 0 ? std::string(keys, static_cast<size_t>(count)) : "";
}

}  // namespace specwire::cli
