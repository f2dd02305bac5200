// SPDX-License-Identifier: Apache-2.0
#include "cli/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>

#include "absl/time/clock.h"

namespace specwire::cli {
namespace {

using testing::HasSubstr;

void WaitForEnd(ChildProcess* child) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (!child->Reap()) {
    ASSERT_LT(absl::Now(), deadline);
    absl::SleepFor(absl::Milliseconds(5));
  }
}

TEST(ChildProcessTest, TellsTheExitCode) {
  absl::StatusOr<ChildProcess> child =
      ChildProcess::Start({"shell", "/bin/sh", {"-c", "exit 7"}});
  ASSERT_TRUE(child.ok()) << child.status();
  WaitForEnd(&*child);
  EXPECT_FALSE(child->running());
  EXPECT_FALSE(child->Reap());
  EXPECT_EQ(child->EndText(), "exited with 7");
}

TEST(ChildProcessTest, TellsTheSignal) {
  absl::StatusOr<ChildProcess> child =
      ChildProcess::Start({"sleep", "/bin/sleep", {"1000"}});
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_TRUE(child->running());
  child->Signal(SIGTERM);
  WaitForEnd(&*child);
  EXPECT_EQ(child->EndText(), "was killed by signal 15");
  // Another process may have its number by now: no signal reaches it.
  child->Signal(SIGKILL);
}

TEST(ChildProcessTest, SaysWhichProgramCannotBeRun) {
  const absl::Status status =
      ChildProcess::Start({"node", "/nonexistent/verifier_node", {}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("/nonexistent/verifier_node"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("No such file or directory"));
}

TEST(ChildProcessTest, PassesOutputAndASignalMaskThatBlocksNothing) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  absl::StatusOr<ChildProcess> child =
      ChildProcess::Start({"shell",
                           "/bin/sh",
                           {"-c", "grep SigBlk /proc/self/status; cat"},
                           pipe_fds[1]});
  close(pipe_fds[1]);
  ASSERT_TRUE(child.ok()) << child.status();
  std::string output;
  char bytes[256];
  ssize_t count = 0;
  while ((count = read(pipe_fds[0], bytes, sizeof(bytes))) > 0) {
    output.append(bytes, static_cast<size_t>(count));
  }
  close(pipe_fds[0]);
  WaitForEnd(&*child);
  EXPECT_EQ(output, "SigBlk:\t0000000000000000\n");
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace
}  // namespace specwire::cli
