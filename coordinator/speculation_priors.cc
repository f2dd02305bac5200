// SPDX-License-Identifier: Apache-2.0
#include "coordinator/speculation_priors.h"

#include <algorithm>
#include <cstddef>

namespace specwire::coordinator {
namespace {

// More models and drafters than a cluster has; beyond, nothing is remembered.
constexpr size_t kMaxEntries = 256;
// Weight of one request.
constexpr double kWeight = 0.25;

void Blend(double value, double* average) {
  *average += kWeight * (value - *average);
}

void BlendTime(double seconds, double* average) {
  if (seconds <= 0) return;
  if (*average <= 0) {
    *average = seconds;
  } else {
    Blend(seconds, average);
  }
}

}  // namespace

SpeculationStart SpeculationPriors::Start(const std::string& model_digest,
                                          const std::string& drafter) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find({model_digest, drafter});
  if (it == entries_.end()) return {};
  Entry& entry = it->second;
  SpeculationStart start = {.estimates = entry.estimates,
                            .first_attempt = entry.estimates.pause_tokens};
  if (!entry.estimates.pays && entry.tokens_to_attempt <= 0) {
    // This one tries for all.
    start.first_attempt = 1;
    entry.tokens_to_attempt = entry.estimates.pause_tokens;
  }
  return start;
}

void SpeculationPriors::Report(const std::string& model_digest,
                               const std::string& drafter,
                               const SpeculationEstimates& estimates,
                               int num_tokens) {
  MutexLock lock(&mutex_);
  const Key key = {model_digest, drafter};
  auto it = entries_.find(key);
  if (it == entries_.end()) {
    if (entries_.size() >= kMaxEntries) return;
    it = entries_
             .emplace(key,
                      Entry{.estimates = estimates,
                            .tokens_to_attempt = estimates.pause_tokens})
             .first;
    return;
  }
  Entry& entry = it->second;
  SpeculationEstimates& known = entry.estimates;
  if (known.pays && !estimates.pays) {
    entry.tokens_to_attempt = estimates.pause_tokens;
  } else {
    entry.tokens_to_attempt = std::max(entry.tokens_to_attempt - num_tokens, 0);
  }
  Blend(estimates.first, &known.first);
  Blend(estimates.next, &known.next);
  Blend(estimates.answered, &known.answered);
  BlendTime(estimates.wait, &known.wait);
  BlendTime(estimates.plain, &known.plain);
  BlendTime(estimates.row, &known.row);
  known.pays = estimates.pays;
  known.pause_tokens = estimates.pause_tokens;
}

}  // namespace specwire::coordinator
