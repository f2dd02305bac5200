// SPDX-License-Identifier: Apache-2.0
#include "common/base/signals.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <unistd.h>

#include "gtest/gtest.h"

namespace specwire {
namespace {

// Each case runs in a process of its own: signals belong to a process.

void WaitAndExit() {
  const std::optional<int> signal = WaitForShutdownSignal(absl::Seconds(30));
  std::_Exit(signal.value_or(100));
}

TEST(SignalsDeathTest, WaitReturnsWhatArrives) {
  EXPECT_EXIT(
      {
        BlockShutdownSignals();
        kill(getpid(), SIGINT);
        WaitAndExit();
      },
      testing::ExitedWithCode(SIGINT),
      "");
}

TEST(SignalsDeathTest, AnyThreadCanRequestAShutdown) {
  EXPECT_EXIT(
      {
        BlockShutdownSignals();
        std::thread thread([] { RequestShutdown(); });
        thread.join();
        WaitAndExit();
      },
      testing::ExitedWithCode(SIGTERM),
      "");
}

TEST(SignalsDeathTest, WaitTimesOut) {
  EXPECT_EXIT(
      {
        BlockShutdownSignals();
        const bool none =
            !WaitForShutdownSignal(absl::Milliseconds(5)).has_value();
        std::_Exit(none ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "");
}

TEST(SignalsDeathTest, ASecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        BlockShutdownSignals();
        RequestShutdown();
        WaitForShutdownSignal();
        UnblockShutdownSignals();
        kill(getpid(), SIGTERM);
        std::_Exit(0);
      },
      testing::KilledBySignal(SIGTERM),
      "");
}

TEST(SignalsDeathTest, AClosedPipeIsAnError) {
  EXPECT_EXIT(
      {
        BlockShutdownSignals();
        int ends[2];
        if (pipe(ends) != 0) std::_Exit(1);
        close(ends[0]);
        std::_Exit(write(ends[1], "x", 1) == -1 && errno == EPIPE ? 0 : 2);
      },
      testing::ExitedWithCode(0),
      "");
}

}  // namespace
}  // namespace specwire
