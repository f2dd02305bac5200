// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>
#include <thread>

namespace specwire {

// Carries one TCP connection from a port of its own to another local port,
// until it is told to carry nothing more: then the connection stays open, and
// both ends see a peer that has vanished.
class Relay {
 public:
  explicit Relay(int target_port);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  std::string address() const;
  void Blackhole() { blackhole_ = true; }

 private:
  void Run();

  const int target_port_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> blackhole_ = false;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace specwire
