// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/slowdown.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace specwire::verifier {
namespace {

// The part of its deviation by which a pass moves the value, and the greatest
// deviation that counts.
constexpr double kRate = 0.1;
constexpr double kGreatestStep = 1;

StepCosts CostsOf(absl::Span<const StepCost> costs) {
  std::vector<StepCosts::Point> points;
  points.reserve(costs.size());
  for (const StepCost& cost : costs) {
    points.push_back({cost.num_rows, cost.duration});
  }
  return StepCosts(points);
}

}  // namespace

Slowdown::Slowdown(absl::Span<const StepCost> costs) : costs_(CostsOf(costs)) {}

void Slowdown::Observe(int64_t num_rows, double seconds) {
  if (!(seconds > 0)) return;
  const double usual = costs_.PassSeconds(static_cast<double>(num_rows));
  const double deviation = std::log(seconds / usual) - log_;
  log_ += kRate * std::clamp(deviation, -kGreatestStep, kGreatestStep);
}

double Slowdown::value() const { return std::exp(log_); }

}  // namespace specwire::verifier
