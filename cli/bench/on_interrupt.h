// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "cli/interrupt.h"

namespace specwire::cli::bench {

// Calls a function, in a thread of its own, when the first SIGINT or SIGTERM
// arrives while it exists; the second ends the program.
// REQUIRES: BlockShutdownSignals() was called; no other reader of the signals.
class OnInterrupt {
 public:
  explicit OnInterrupt(std::function<void()> function);
  // Waits for the function.
  ~OnInterrupt();
  OnInterrupt(const OnInterrupt&) = delete;
  OnInterrupt& operator=(const OnInterrupt&) = delete;

  bool interrupted() const { return interrupted_; }

 private:
  void Watch();

  const std::function<void()> function_;
  SignalSource signals_;
  // Becomes readable when the object ends; -1 if there was no descriptor left.
  const int stop_fd_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> interrupted_ = false;
  std::thread thread_;
};

}  // namespace specwire::cli::bench
