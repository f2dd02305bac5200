// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace specwire {

// Tells for how long somebody who has work has got nowhere, from looks at him
// now and then. A pause between two looks that is longer than `longest_pause`
// says nothing of him: whoever looks may have stood still himself.
//
// Thread safety: one thread at a time.
class ProgressWatch {
 public:
  explicit ProgressWatch(absl::Duration longest_pause)
      : longest_pause_(longest_pause) {}

  // A look: his count of progress, and whether he has work. Returns how long he
  // has stood still; zero if he has not.
  absl::Duration Observe(int64_t progress, bool working, absl::Time now) {
    if (!working || progress != progress_ || now - last_ > longest_pause_) {
      since_ = now;
    }
    progress_ = progress;
    last_ = now;
    return now - since_;
  }

 private:
  absl::Duration longest_pause_;
  int64_t progress_ = -1;
  absl::Time since_;
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace specwire
