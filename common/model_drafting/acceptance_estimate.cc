// SPDX-License-Identifier: Apache-2.0
#include "common/model_drafting/acceptance_estimate.h"

#include <algorithm>

namespace specwire {
namespace {

// Tokens that the probability itself counts for.
constexpr double kPrior = 8;
// Beyond so many, what was seen counts half.
constexpr double kMostSeen = 512;

}  // namespace

size_t AcceptanceEstimate::StepOf(double probability) {
  return std::min(
      static_cast<size_t>(probability * static_cast<double>(kNumSteps)),
      kNumSteps - 1);
}

double AcceptanceEstimate::Chance(double probability) const {
  const Step& step = steps_[StepOf(probability)];
  return std::clamp(
      probability + step.surplus / (kPrior + step.seen), 0.0, 1.0);
}

void AcceptanceEstimate::Observe(double probability, bool accepted) {
  Step& step = steps_[StepOf(probability)];
  step.seen += 1;
  step.surplus += (accepted ? 1.0 : 0.0) - probability;
  if (step.seen > kMostSeen) {
    step.seen /= 2;
    step.surplus /= 2;
  }
}

}  // namespace specwire
