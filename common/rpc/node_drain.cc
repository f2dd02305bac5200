// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/node_drain.h"

#include <algorithm>

#include "common/base/logging.h"
#include "common/base/signals.h"

namespace specwire {
namespace {

constexpr absl::Duration kLookPeriod = absl::Milliseconds(20);

}  // namespace

void NodeDrain::Ask(std::optional<absl::Duration> grace) {
  bool first = false;
  {
    MutexLock lock(&mutex_);
    first = !asked_ && deadline_ == absl::InfiniteFuture();
    asked_ = true;
    deadline_ = std::min(deadline_, clock_.Now() + grace.value_or(grace_));
  }
  if (first) RequestShutdown();
}

std::string NodeDrain::Wait() {
  WaitForShutdownSignal();
  MutexLock lock(&mutex_);
  deadline_ = std::min(deadline_, clock_.Now() + grace_);
  return asked_ ? "an operator asked for it" : "a signal asked for it";
}

absl::Duration NodeDrain::left() const {
  MutexLock lock(&mutex_);
  return std::max(deadline_ - clock_.Now(), absl::ZeroDuration());
}

bool NodeDrain::WaitIdle(const std::function<bool()>& idle) {
  while (!idle()) {
    if (left() <= absl::ZeroDuration()) return false;
    if (WaitForShutdownSignal(std::min(kLookPeriod, left())).has_value()) {
      SPECWIRE_LOG(Info, "a second signal: what runs is ended now");
      return false;
    }
  }
  return true;
}

}  // namespace specwire
