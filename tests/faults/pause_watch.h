// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <thread>

#include "absl/time/time.h"

namespace specwire::faults {

// Notices when this process, and with it every relay, stood still for longer
// than a busy machine explains: then links failed that no cell has struck.
//
// Thread safety: any thread.
class PauseWatch {
 public:
  PauseWatch() : thread_([this] { Watch(); }) {}
  ~PauseWatch();
  PauseWatch(const PauseWatch&) = delete;
  PauseWatch& operator=(const PauseWatch&) = delete;

  // How often that was so.
  int num_pauses() const { return num_pauses_; }

 private:
  void Watch();

  std::atomic<bool> stopping_ = false;
  std::atomic<int> num_pauses_ = 0;
  std::thread thread_;
};

}  // namespace specwire::faults
