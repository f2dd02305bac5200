// SPDX-License-Identifier: Apache-2.0
#include "common/base/byte_budget.h"

#include <algorithm>

#include "common/base/clock.h"

namespace specwire {

bool ByteBudget::Lease::Grow(size_t bytes) {
  if (!budget_->TryTake(bytes)) return false;
  bytes_ += bytes;
  return true;
}

void ByteBudget::Lease::Release() {
  if (bytes_ > 0) budget_->Return(std::exchange(bytes_, 0));
}

bool ByteBudget::TryTake(size_t bytes) {
  MutexLock lock(&mutex_);
  if (bytes > total_ - used_) return false;
  used_ += bytes;
  return true;
}

void ByteBudget::Return(size_t bytes) {
  MutexLock lock(&mutex_);
  used_ -= bytes;
  changed_.NotifyAll();
}

std::optional<ByteBudget::Lease> ByteBudget::Take(size_t bytes,
                                                  absl::Duration patience) {
  bytes = std::min(bytes, total_);
  const SteadyClock clock;
  const absl::Time deadline = clock.Now() + patience;
  MutexLock lock(&mutex_);
  const int64_t number = ++last_waiting_;
  waiting_.insert(number);
  while (*waiting_.begin() != number || bytes > total_ - used_) {
    const absl::Duration left = deadline - clock.Now();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(&mutex_, left);
  }
  const bool taken = *waiting_.begin() == number && bytes <= total_ - used_;
  waiting_.erase(number);
  // Whoever is next may find room where this one had none.
  changed_.NotifyAll();
  if (!taken) return std::nullopt;
  used_ += bytes;
  return Lease(this, bytes);
}

size_t ByteBudget::used() const {
  MutexLock lock(&mutex_);
  return used_;
}

}  // namespace specwire
