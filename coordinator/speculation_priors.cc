// SPDX-License-Identifier: Apache-2.0
#include "coordinator/speculation_priors.h"

#include <algorithm>
#include <cstddef>

namespace specwire::coordinator {
namespace {

// More models and drafters than a cluster has; beyond, nothing is remembered.
constexpr size_t kMaxEntries = 256;
// Weight of one request: in what it saw, and in whether it found drafts to pay.
constexpr double kWeight = 0.25;
constexpr double kPayingWeight = 1.0 / 6;
// At least such a part of requests makes trying worth while for each.
constexpr double kFairPart = 0.1;
// Else one in so many tries.
constexpr int kRequestsPerAttempt = 4;
// Tokens before it tries, and before others do.
constexpr int kEarlyAttempt = 8;
constexpr int kLatestAttempt = 512;
// Tokens that a request pauses for where drafts pay for few.
constexpr int kLongPause = 128;

}  // namespace

SpeculationStart SpeculationPriors::Start(const std::string& model_digest,
                                          const std::string& drafter) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find({model_digest, drafter});
  if (it == entries_.end()) return {};
  Entry& entry = it->second;
  SpeculationStart start = {.estimates = entry.estimates,
                            .first_attempt = kLatestAttempt};
  if (entry.paying < kFairPart) {
    // One attempt that fails is enough for it.
    start.estimates.pause_tokens = kLongPause;
  }
  if (entry.paying >= kFairPart || ++entry.num_begun >= kRequestsPerAttempt) {
    start.first_attempt = kEarlyAttempt;
    entry.num_begun = 0;
  }
  return start;
}

void SpeculationPriors::Report(const std::string& model_digest,
                               const std::string& drafter,
                               const SpeculationEstimates& estimates) {
  MutexLock lock(&mutex_);
  const Key key = {model_digest, drafter};
  auto it = entries_.find(key);
  if (it == entries_.end()) {
    if (entries_.size() >= kMaxEntries) return;
    it = entries_
             .emplace(key,
                      Entry{.estimates = estimates,
                            .paying = estimates.pays ? 1.0 : 0.0})
             .first;
    return;
  }
  Entry& entry = it->second;
  entry.paying += kPayingWeight * ((estimates.pays ? 1 : 0) - entry.paying);
  entry.estimates.Blend(estimates, kWeight);
  entry.estimates.pays = entry.paying >= 0.5;
}

}  // namespace specwire::coordinator
