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
// did not pay, every request still tries them once, early on, as long as a fair
// part of those before found them to pay; else only some do, ever fewer while
// none of them finds that they pay.
//
// Thread safety: any thread.
class SpeculationPriors {
 public:
  // `drafter` is the name that the request asks for; empty: any. `doubtful`:
  // as long as nothing is known, drafts are expected not to pay.
  SpeculationStart Start(const std::string& model_digest,
                         const std::string& drafter,
                         bool doubtful = false);
  // A request has ended that saw `estimates`.
  void Report(const std::string& model_digest,
              const std::string& drafter,
              const SpeculationEstimates& estimates);

 private:
  struct Entry {
    SpeculationEstimates estimates;
    // Share of the latest requests for which drafts paid in the end.
    double paying = 0;
    // Requests begun since one tried, and after how many the next one does.
    int num_begun = 0;
    int requests_per_attempt = 0;
    // Nobody has reported anything.
    bool is_new = true;
  };
  using Key = std::pair<std::string, std::string>;

  // Makes one if there is none; null if there are too many.
  Entry* Find(const Key& key, bool doubtful)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::map<Key, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specwire::coordinator
