// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <termios.h>

#include <optional>
#include <string>
#include <vector>

namespace specwire::cli {

// The whole of the terminal on standard output, as long as it lives: another
// screen than the user's, without a cursor. Keys on standard input, if that is
// the terminal too, come at once and are not shown. The end gives back what was
// there. No library: the codes are ECMA-48's and xterm's, which all terminals
// of today know.
//
// Thread safety: one thread.
class Terminal {
 public:
  struct Size {
    int width = 80;
    int height = 24;
  };

  // REQUIRES: standard output is a terminal.
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // As it is now: users change it.
  Size size() const;
  // Shows lines that fit, in place of all that was there. False if the terminal
  // is gone.
  bool Show(const std::vector<std::string>& lines);
  // Takes the keys that were pressed; nothing if standard input is no terminal.
  std::string TakeKeys();
  // Standard input can be waited for.
  bool has_keys() const { return saved_.has_value(); }

 private:
  // What standard input was like.
  std::optional<termios> saved_;
};

}  // namespace specwire::cli
