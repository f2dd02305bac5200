// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace specwire::cli {

// A program to run.
struct ChildSpec {
  // For people.
  std::string name;
  std::string program;
  std::vector<std::string> arguments;
  // Its standard output; -1: thrown away. Standard error is shared.
  int output_fd = -1;
};

// A program that runs as a child, in this process's group. It is killed when
// this process ends, however that happens.
//
// Thread safety: one thread, which must live as long as the child: the kernel
// takes that thread's end for the parent's.
class ChildProcess {
 public:
  static absl::StatusOr<ChildProcess> Start(const ChildSpec& spec);

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }
  bool running() const { return !wait_status_.has_value(); }

  // Takes notice of its end; returns true once, when it has just ended.
  bool Reap();
  // How it ended, for example "exited with 1" or "was killed by signal 9".
  // REQUIRES: !running().
  std::string EndText() const;

  // Sends a signal if it runs.
  void Signal(int signal) const;

 private:
  ChildProcess(std::string name, pid_t pid)
      : name_(std::move(name)), pid_(pid) {}

  std::string name_;
  pid_t pid_;
  std::optional<int> wait_status_;
};

}  // namespace specwire::cli
