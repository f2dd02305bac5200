// SPDX-License-Identifier: Apache-2.0
#include "coordinator/drafter_preference.h"

#include <cstddef>

namespace specwire::coordinator {
namespace {

// More models than a cluster has; beyond, nothing is remembered.
constexpr size_t kMaxEntries = 256;
// How much faster the other must be expected to be to become the preferred one.
constexpr double kMargin = 0.03;

}  // namespace

bool DrafterPreference::TakesLocal(const std::string& model_digest,
                                   std::optional<double> draft_nodes,
                                   std::optional<double> local) {
  MutexLock lock(&mutex_);
  if (entries_.size() >= kMaxEntries && !entries_.contains(model_digest)) {
    return false;
  }
  Entry& entry = entries_[model_digest];
  if (draft_nodes.has_value() && local.has_value()) {
    const double preferred = entry.prefers_local ? *local : *draft_nodes;
    const double other = entry.prefers_local ? *draft_nodes : *local;
    if (other > preferred * (1 + kMargin)) {
      entry.prefers_local = !entry.prefers_local;
    }
  } else if (draft_nodes.has_value() && *draft_nodes <= 1) {
    // Nothing is lost by finding out.
    return true;
  }
  if (++entry.num_begun < kRequestsPerTrial) return entry.prefers_local;
  entry.num_begun = 0;
  return !entry.prefers_local;
}

}  // namespace specwire::coordinator
