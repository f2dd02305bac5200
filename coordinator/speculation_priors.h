// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "coordinator/speculation_control.h"

namespace specwire::coordinator {

// What requests have seen of drafts, by model and drafter, for those that come
// next: a short request would end before it had learnt anything. Where drafts
// do not pay, one request in many tries again.
//
// Thread safety: any thread.
class SpeculationPriors {
 public:
  // `drafter` is the name that the request asks for; empty: any.
  SpeculationStart Start(const std::string& model_digest,
                         const std::string& drafter);
  // A request has ended that committed `num_tokens` and saw `estimates`.
  void Report(const std::string& model_digest,
              const std::string& drafter,
              const SpeculationEstimates& estimates,
              int num_tokens);

 private:
  struct Entry {
    SpeculationEstimates estimates;
    // Tokens to commit, by whomever, until somebody tries again.
    int tokens_to_attempt = 0;
  };
  using Key = std::pair<std::string, std::string>;

  Mutex mutex_;
  std::map<Key, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specwire::coordinator
