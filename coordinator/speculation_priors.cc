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
// Else one in so many tries, at first and in the end.
constexpr int kRequestsPerAttempt = 4;
constexpr int kMostRequestsPerAttempt = 32;
// Tokens before it tries, and before others do.
constexpr int kEarlyAttempt = 8;
constexpr int kLatestAttempt = 512;
// Tokens that a request pauses for where drafts pay for few.
constexpr int kLongPause = 128;

}  // namespace

SpeculationStart SpeculationPriors::Start(const std::string& model_digest,
                                          const std::string& drafter,
                                          bool doubtful) {
  MutexLock lock(&mutex_);
  Entry* const entry = Find({model_digest, drafter}, doubtful);
  if (entry == nullptr) return {};
  SpeculationStart start = {.estimates = entry->estimates,
                            .first_attempt = kLatestAttempt};
  if (entry->paying >= kFairPart) {
    start.first_attempt = kEarlyAttempt;
    return start;
  }
  // One attempt that fails is enough for it.
  start.estimates.pause_tokens = kLongPause;
  if (++entry->num_begun >= entry->requests_per_attempt) {
    start.first_attempt = kEarlyAttempt;
    entry->num_begun = 0;
    entry->requests_per_attempt =
        std::min(2 * entry->requests_per_attempt, kMostRequestsPerAttempt);
  }
  return start;
}

void SpeculationPriors::Report(const std::string& model_digest,
                               const std::string& drafter,
                               const SpeculationEstimates& estimates) {
  MutexLock lock(&mutex_);
  Entry* const entry = Find({model_digest, drafter}, !estimates.pays);
  if (entry == nullptr) return;
  if (estimates.pays) entry->requests_per_attempt = kRequestsPerAttempt;
  if (entry->is_new) {
    entry->is_new = false;
    entry->paying = estimates.pays ? 1 : 0;
    entry->estimates = estimates;
    return;
  }
  entry->paying += kPayingWeight * ((estimates.pays ? 1 : 0) - entry->paying);
  entry->estimates.Blend(estimates, kWeight);
  entry->estimates.pays = entry->paying >= 0.5;
}

SpeculationPriors::Entry* SpeculationPriors::Find(const Key& key,
                                                  bool doubtful) {
  const auto it = entries_.find(key);
  if (it != entries_.end()) return &it->second;
  if (entries_.size() >= kMaxEntries) return nullptr;
  Entry& entry = entries_[key];
  entry.paying = doubtful ? 0 : 1;
  entry.estimates.pays = !doubtful;
  entry.requests_per_attempt = kRequestsPerAttempt;
  return &entry;
}

}  // namespace specwire::coordinator
