// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace specwire::coordinator {

// Where requests that name no drafter have their drafts made while there are
// both draft nodes and a local drafter: with the one whose requests are
// expected to run faster, by model. Until both are known, with the draft nodes,
// unless their drafts do not pay. One request in so many takes the other, so
// that both stay known.
//
// Thread safety: any thread.
class DrafterPreference {
 public:
  // Requests between two that take the other, one of them included.
  static constexpr int kRequestsPerTrial = 16;

  // Whether the next request to the model begins with the local drafter. The
  // speed-ups are those expected with either, where they are known.
  bool TakesLocal(const std::string& model_digest,
                  std::optional<double> draft_nodes,
                  std::optional<double> local);

 private:
  struct Entry {
    bool prefers_local = false;
    int num_begun = 0;
  };

  Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specwire::coordinator
