// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/timer.h"

namespace specwire {

// Ends streams on which nothing has come for too long, by looks at them now and
// then. A look that comes late, because this process itself stood still, counts
// as one: nobody could have been heard meanwhile.
//
// Thread safety: any thread.
// Lifetime: may go before or after what it watches.
class StreamWatch {
 public:
  using OnSilent = absl::AnyInvocable<void(absl::Status)>;

  // One stream. Its user drops it when the stream has ended.
  class Watched {
   public:
    Watched(absl::Duration limit, OnSilent on_silent)
        : on_silent_(std::move(on_silent)) {
      LimitTo(limit);
    }

    // Something has come.
    void OnHeard() { num_heard_.fetch_add(1, std::memory_order_relaxed); }
    // From now on. Not positive: it may be silent for ever.
    void LimitTo(absl::Duration limit) {
      limit_ms_ = absl::ToInt64Milliseconds(limit);
    }

   private:
    friend class StreamWatch;

    std::atomic<int64_t> num_heard_{0};
    std::atomic<int64_t> limit_ms_;
    // The rest belongs to the watch.
    OnSilent on_silent_;
    int64_t num_heard_before_ = 0;
    absl::Duration silence_;
  };

  // Until LimitTo is called a stream may be silent for `first_limit`.
  explicit StreamWatch(absl::Duration first_limit = absl::Seconds(30),
                       absl::Duration period = absl::Seconds(1));
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

  // `on_silent` is called at most once, with ABORTED, on the watch's thread; it
  // must not block.
  std::shared_ptr<Watched> Add(OnSilent on_silent);

 private:
  void Look();

  const absl::Duration first_limit_;
  const absl::Duration period_;
  Mutex mutex_;
  std::list<std::weak_ptr<Watched>> streams_ ABSL_GUARDED_BY(mutex_);
  // Last: its thread uses the rest.
  TimerThread timer_;
};

}  // namespace specwire
