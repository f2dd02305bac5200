// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace specwire::coordinator {

// Where requests that name no drafter have their drafts made while there are
// both draft nodes and a local drafter: with the one whose requests have in
// fact been faster, by model. That counts what no estimate of one request sees,
// such as a draft node that shares its processors with a verifier. Until that
// is known, with the draft nodes. One request in so many takes the other, so
// that both stay known.
//
// Thread safety: any thread.
class DrafterPreference {
 public:
  // Requests between two that take the other, one of them included: while it is
  // not known, and later.
  static constexpr int kRequestsPerFirstTrial = 4;
  static constexpr int kRequestsPerTrial = 16;
  // Requests after which a speed is known.
  static constexpr int kRequestsToKnow = 4;

  // Whether the next request to the model begins with the local drafter.
  bool TakesLocal(const std::string& model_digest);
  // A request has ended whose drafts all came from the local drafter or all
  // from draft nodes; its tokens after the first took so long.
  void Report(const std::string& model_digest,
              bool local,
              int num_tokens,
              absl::Duration time);

 private:
  // Sums that forget.
  struct Speed {
    double tokens = 0;
    double seconds = 0;
    int num_requests = 0;
    bool known() const { return num_requests >= kRequestsToKnow; }
    double rate() const { return tokens / seconds; }
  };
  struct Entry {
    Speed draft_nodes;
    Speed local;
    bool prefers_local = false;
    int num_begun = 0;
  };

  Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specwire::coordinator
