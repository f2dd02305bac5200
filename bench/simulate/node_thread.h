// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace specwire::simulate {

// The thread of a node in virtual time: as on a real one, what comes while a
// pass is under way is taken behind it, in order.
//
// Thread safety: one thread at a time.
class NodeThread {
 public:
  // `pump` begins the next pass, if there is work and none is under way. It is
  // called behind events.
  explicit NodeThread(std::function<void()> pump) : pump_(std::move(pump)) {}
  NodeThread(const NodeThread&) = delete;
  NodeThread& operator=(const NodeThread&) = delete;

  void Take(std::function<void()> event) {
    if (busy_) {
      inbox_.push_back(std::move(event));
      return;
    }
    event();
    pump_();
  }
  // A pass is under way until EndPass().
  void BeginPass() { busy_ = true; }
  void EndPass() {
    busy_ = false;
    std::vector<std::function<void()>> inbox;
    inbox.swap(inbox_);
    for (const auto& event : inbox) event();
    pump_();
  }
  bool busy() const { return busy_; }

  // Keeps the first that is not OK.
  void Check(const absl::Status& status) {
    if (!status.ok() && failure_.empty()) failure_ = status.ToString();
  }
  // What a stream was told that a real node would not take; empty, if all is
  // well.
  const std::string& failure() const { return failure_; }

 private:
  const std::function<void()> pump_;
  bool busy_ = false;
  std::vector<std::function<void()>> inbox_;
  std::string failure_;
};

}  // namespace specwire::simulate
