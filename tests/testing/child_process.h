// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace specwire {

// A program that a test runs. Its standard output is read line by line, its
// standard error as a whole when it has ended.
//
// Lifetime: the destructor kills it, and so does the end of the thread that
// made it, so that a test which dies leaves nothing behind.
class ChildProcess {
 public:
  // `environment` is added to that of the test.
  explicit ChildProcess(
      const std::vector<std::string>& command,
      const std::vector<std::pair<std::string, std::string>>& environment = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // The next line of standard output without its end; empty at the end.
  std::string ReadLine();
  void Signal(int signal);
  // Waits for its end and returns its exit code; minus the signal's number if
  // one ended it.
  int Wait();
  // REQUIRES: Wait() has returned.
  std::string errors();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;

  pid_t pid_ = -1;
  File output_;
  // A temporary file: a pipe could fill.
  File errors_;
};

}  // namespace specwire
