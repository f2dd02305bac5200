// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <initializer_list>
#include <optional>
#include <thread>

namespace specwire::cli {

// Signals as a file descriptor that can be waited for beside others.
// REQUIRES: the signals are blocked in every thread.
class SignalSource {
 public:
  explicit SignalSource(std::initializer_list<int> signals);
  ~SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  int fd() const { return fd_; }
  // The number of a signal that has arrived and was not taken yet.
  std::optional<int> Take();

 private:
  const int fd_;
};

// Calls a function, in a thread of its own, each time that SIGINT or SIGTERM
// arrives while it exists.
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

}  // namespace specwire::cli
