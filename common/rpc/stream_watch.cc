// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/stream_watch.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace specwire {

StreamWatch::StreamWatch(absl::Duration first_limit, absl::Duration period)
    : first_limit_(first_limit), period_(period) {
  timer_.ScheduleAfter(period_, [this] { Look(); });
}

std::shared_ptr<StreamWatch::Watched> StreamWatch::Add(OnSilent on_silent) {
  auto watched = std::make_shared<Watched>(first_limit_, std::move(on_silent));
  MutexLock lock(&mutex_);
  streams_.push_back(watched);
  return watched;
}

void StreamWatch::Look() {
  // Held beyond the lock: whoever is the last to hold one ends it without.
  std::vector<std::shared_ptr<Watched>> held;
  std::vector<std::shared_ptr<Watched>> silent;
  {
    MutexLock lock(&mutex_);
    for (auto it = streams_.begin(); it != streams_.end();) {
      std::shared_ptr<Watched> watched = it->lock();
      if (watched == nullptr) {
        it = streams_.erase(it);
        continue;
      }
      const int64_t num_heard = watched->num_heard_;
      watched->silence_ = num_heard == watched->num_heard_before_
                              ? watched->silence_ + period_
                              : absl::ZeroDuration();
      watched->num_heard_before_ = num_heard;
      const int64_t limit_ms = watched->limit_ms_;
      if (limit_ms > 0 && watched->silence_ > absl::Milliseconds(limit_ms)) {
        silent.push_back(watched);
        it = streams_.erase(it);
      } else {
        ++it;
      }
      held.push_back(std::move(watched));
    }
  }
  for (const auto& watched : silent) {
    watched->on_silent_(absl::AbortedError(
        absl::StrCat("nothing has come on the stream for ",
                     absl::FormatDuration(watched->silence_))));
  }
  timer_.ScheduleAfter(period_, [this] { Look(); });
}

}  // namespace specwire
