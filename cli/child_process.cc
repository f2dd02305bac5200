// SPDX-License-Identifier: Apache-2.0
#include "cli/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace specwire::cli {
namespace {

// What the child does between fork and exec: system calls only, since other
// threads may have held any lock at the fork. Writes errno to `error_fd` if the
// program cannot be run; a successful exec closes it.
[[noreturn]] void RunInChild(char* const argv[],
                             pid_t parent,
                             int output_fd,
                             int error_fd) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  // The signal is set for a parent that dies from here on; one that died before
  // shows as another parent.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
    _exit(127);
  }
  // O_CLOEXEC closes the original, not the copies.
  const int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null_fd, STDIN_FILENO);
  dup2(output_fd >= 0 ? output_fd : null_fd, STDOUT_FILENO);
  execv(argv[0], argv);
  const int error = errno;
  [[maybe_unused]] const ssize_t written =
      write(error_fd, &error, sizeof(error));
  _exit(127);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const ChildSpec& spec) {
  std::vector<std::string> strings = {spec.program};
  strings.insert(strings.end(), spec.arguments.begin(), spec.arguments.end());
  std::vector<char*> argv;
  argv.reserve(strings.size() + 1);
  for (std::string& text : strings) {
    argv.push_back(text.data());
  }
  argv.push_back(nullptr);

  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    RunInChild(argv.data(), parent, spec.output_fd, pipe_fds[1]);
  }
  const int fork_error = errno;
  close(pipe_fds[1]);
  if (pid < 0) {
    close(pipe_fds[0]);
    return absl::InternalError(absl::StrCat(
        "cannot start ", spec.name, ": ", std::strerror(fork_error)));
  }
  int error = 0;
  const ssize_t count = read(pipe_fds[0], &error, sizeof(error));
  close(pipe_fds[0]);
  if (count == static_cast<ssize_t>(sizeof(error))) {
    waitpid(pid, nullptr, 0);
    return absl::NotFoundError(absl::StrCat("cannot run ",
                                            spec.program,
                                            " (",
                                            spec.name,
                                            "): ",
                                            std::strerror(error)));
  }
  return ChildProcess(spec.name, pid);
}

bool ChildProcess::Reap() {
  int status = 0;
  if (!running() || waitpid(pid_, &status, WNOHANG) != pid_) {
    return false;
  }
  wait_status_ = status;
  return true;
}

std::string ChildProcess::EndText() const {
  const int status = wait_status_.value_or(0);
  if (WIFSIGNALED(status)) {
    return absl::StrCat("was killed by signal ", WTERMSIG(status));
  }
  return absl::StrCat("exited with ", WEXITSTATUS(status));
}

void ChildProcess::Signal(int signal) const {
  if (running()) {
    kill(pid_, signal);
  }
}

}  // namespace specwire::cli
