// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace specwire {

// Memory that many share: each takes what it is about to hold, and is refused,
// or waits, when all together would hold too much.
//
// Thread safety: any thread; a lease one at a time.
// Lifetime: outlives its leases.
class ByteBudget {
 public:
  // What one of them has taken; given back when it goes.
  class Lease {
   public:
    // Of nothing.
    Lease() = default;
    Lease(Lease&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)),
          bytes_(std::exchange(other.bytes_, 0)) {}
    Lease& operator=(Lease&& other) noexcept {
      Release();
      budget_ = std::exchange(other.budget_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      return *this;
    }
    ~Lease() { Release(); }

    // Takes so many more. False, and nothing is taken, if they are not there.
    // REQUIRES: it comes from a budget.
    [[nodiscard]] bool Grow(size_t bytes);
    void Release();

   private:
    friend class ByteBudget;
    Lease(ByteBudget* budget, size_t bytes) : budget_(budget), bytes_(bytes) {}

    ByteBudget* budget_ = nullptr;
    size_t bytes_ = 0;
  };

  explicit ByteBudget(size_t total) : total_(total) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // A lease that can grow.
  Lease Open() { return Lease(this, 0); }
  // So many bytes, when those who came before have had theirs; all there are
  // for who wants more. Nothing if that takes longer than `patience`.
  std::optional<Lease> Take(size_t bytes, absl::Duration patience);

  size_t used() const;

 private:
  bool TryTake(size_t bytes);
  void Return(size_t bytes);

  const size_t total_;
  mutable Mutex mutex_;
  CondVar changed_;
  size_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  // Those who wait, in the order of their coming.
  std::set<int64_t> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t last_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace specwire
