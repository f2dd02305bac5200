// SPDX-License-Identifier: Apache-2.0
#include "coordinator/drafter_preference.h"

#include <algorithm>
#include <cstddef>

namespace specwire::coordinator {
namespace {

// More models than a cluster has; beyond, nothing is remembered.
constexpr size_t kMaxEntries = 256;
// How much faster the other must have been to become the preferred one.
constexpr double kMargin = 0.05;
// What a request leaves of what was seen before it. Texts differ by more than
// drafters do, so many of them count.
constexpr double kKept = 0.95;
// Shorter ones tell nothing.
constexpr int kLeastTokens = 16;

}  // namespace

bool DrafterPreference::TakesLocal(const std::string& model_digest) {
  MutexLock lock(&mutex_);
  if (entries_.size() >= kMaxEntries && !entries_.contains(model_digest)) {
    return false;
  }
  Entry& entry = entries_[model_digest];
  const Speed& preferred =
      entry.prefers_local ? entry.local : entry.draft_nodes;
  const Speed& other = entry.prefers_local ? entry.draft_nodes : entry.local;
  const bool known = preferred.known() && other.known();
  if (known && other.rate() > preferred.rate() * (1 + kMargin)) {
    entry.prefers_local = !entry.prefers_local;
  }
  const int period = known ? kRequestsPerTrial : kRequestsPerFirstTrial;
  if (++entry.num_begun < period) return entry.prefers_local;
  entry.num_begun = 0;
  return !entry.prefers_local;
}

void DrafterPreference::Report(const std::string& model_digest,
                               bool local,
                               int num_tokens,
                               absl::Duration time) {
  if (num_tokens < kLeastTokens || time <= absl::ZeroDuration()) return;
  MutexLock lock(&mutex_);
  const auto it = entries_.find(model_digest);
  if (it == entries_.end()) return;
  Speed& speed = local ? it->second.local : it->second.draft_nodes;
  speed.tokens = kKept * speed.tokens + num_tokens;
  speed.seconds = kKept * speed.seconds + absl::ToDoubleSeconds(time);
  speed.num_requests = std::min(speed.num_requests + 1, kRequestsToKnow);
}

}  // namespace specwire::coordinator
