// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace specwire::coordinator {

// What has passed on a stream to a node, as the coordinator knows it: by it
// streams are found out that a living connection no longer carries, or from
// which it has lost messages. The node is asked every now and then whether it
// has all that was sent, and answers how much it has sent itself.
//
// Thread safety: one thread at a time.
class StreamAccount {
 public:
  // Between two checks of streams that may be silent for `deadline`.
  static absl::Duration CheckInterval(absl::Duration deadline) {
    return deadline / 6;
  }
  // For how long a node need not give up a stream of a silent coordinator: that
  // may itself stand still for a while.
  static absl::Duration NodeLimit(absl::Duration deadline) {
    return 2 * deadline;
  }
  // ABORTED if the node has sent another number of messages than have come.
  static absl::Status Compare(int64_t num_sent, int64_t num_received) {
    if (num_sent == num_received) return absl::OkStatus();
    return absl::AbortedError(absl::StrCat("messages were lost: ",
                                           num_sent,
                                           " were sent, ",
                                           num_received,
                                           " have come"));
  }

  void Open(absl::Time now) {
    *this = StreamAccount();
    heard_ = now;
  }
  void OnSending() { ++num_sent_; }
  int64_t num_sent() const { return num_sent_; }
  // Returns how many messages came before this one.
  int64_t OnReceived(absl::Time now) {
    heard_ = now;
    return num_received_++;
  }
  // Whoever was to listen has stood still.
  void Forgive(absl::Time now) { heard_ = now; }
  absl::Duration Silence(absl::Time now) const { return now - heard_; }

 private:
  absl::Time heard_;
  int64_t num_sent_ = 0;
  int64_t num_received_ = 0;
};

}  // namespace specwire::coordinator
