// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace specwire {

ChildProcess::ChildProcess(
    const std::vector<std::string>& command,
    const std::vector<std::pair<std::string, std::string>>& environment)
    : errors_(std::tmpfile()) {
  std::vector<char*> argv;
  for (const std::string& word : command) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  int ends[2];
  // Close-on-exec: a child that another thread starts meanwhile must not keep
  // this one's output open.
  if (errors_ == nullptr || pipe2(ends, O_CLOEXEC) != 0) std::abort();
  pid_ = fork();
  if (pid_ < 0) std::abort();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    dup2(fileno(errors_.get()), STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    for (const auto& [name, value] : environment) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  output_.reset(fdopen(ends[0], "r"));
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  Wait();
}

std::string ChildProcess::ReadLine() {
  std::string line;
  for (int c = 0; (c = std::fgetc(output_.get())) != EOF && c != '\n';) {
    line += static_cast<char>(c);
  }
  return line;
}

void ChildProcess::Signal(int signal) {
  // To -1 would be to everybody.
  if (pid_ > 0) kill(pid_, signal);
}

int ChildProcess::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string ChildProcess::errors() {
  std::string text;
  std::rewind(errors_.get());
  for (int c = 0; (c = std::fgetc(errors_.get())) != EOF;) {
    text += static_cast<char>(c);
  }
  return text;
}

}  // namespace specwire
