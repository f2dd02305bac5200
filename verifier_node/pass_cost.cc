// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/pass_cost.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace specwire::verifier {
namespace {

// Where a row's price changes: up to the first number a pass is bound by its
// weights, from the second on by its arithmetic.
constexpr int64_t kFewRows = 4;
constexpr int64_t kSomeRows = 8;
// Part of a row's time that its logits take, and the context that costs as much
// as a row's linear layers: guesses, until passes have been measured.
constexpr double kLogitsPart = 0.25;
constexpr double kContextOfARow = 1000;
// How far one pass may move the prediction: this part of its error, which
// counts no more than the greatest.
constexpr double kRate = 0.1;
constexpr double kGreatestError = 0.4;
constexpr double kLeast = 1e-10;
constexpr double kMost = 1e3;

// What a pass of `rows` rows took, in seconds: the measurement nearest to it
// that has at least as many, else the largest.
const StepCost* Nearest(absl::Span<const StepCost> costs, int64_t rows) {
  const StepCost* best = nullptr;
  for (const StepCost& cost : costs) {
    if (cost.num_rows < 1 || cost.duration <= absl::ZeroDuration()) continue;
    const bool fits = cost.num_rows >= rows;
    if (best == nullptr ||
        (fits ? best->num_rows < rows || cost.num_rows < best->num_rows
              : best->num_rows < rows && cost.num_rows > best->num_rows)) {
      best = &cost;
    }
  }
  return best;
}

double Bounded(double weight) { return std::clamp(weight, kLeast, kMost); }

}  // namespace

PassCost::PassCost(absl::Span<const StepCost> costs) {
  double base = 1e-3;
  double slopes[] = {1e-4, 1e-4, 1e-4};
  if (const StepCost* last = Nearest(costs, 1)) {
    const double one = absl::ToDoubleSeconds(last->duration) / last->num_rows;
    // A row costs something, whatever the noise says.
    double slope = 0.1 * one;
    const int64_t ends[] = {kFewRows, kSomeRows, Engine::kMaxRows};
    for (size_t i = 0; i < 3; ++i) {
      const StepCost* const next = Nearest(costs, ends[i]);
      if (next->num_rows > last->num_rows) {
        slope = absl::ToDoubleSeconds(next->duration - last->duration) /
                (next->num_rows - last->num_rows);
        slope = std::max(slope, 0.01 * one);
        last = next;
      }
      slopes[i] = slope;
    }
    base = std::max(one - slopes[0], 0.1 * one);
  }
  const double logits = kLogitsPart * slopes[0];
  weights_ = {Bounded(base),
              Bounded(slopes[0] - logits),
              Bounded(slopes[1] - logits),
              Bounded(slopes[2] - logits),
              Bounded(logits),
              Bounded(slopes[2] / kContextOfARow),
              Bounded(slopes[2] / kContextOfARow)};
}

PassCost::Terms PassCost::Features(const PassShape& shape) {
  const int64_t few = std::min(shape.rows, kFewRows);
  const int64_t some = std::min(shape.rows, kSomeRows) - few;
  return {1,
          static_cast<double>(few),
          static_cast<double>(some),
          static_cast<double>(shape.rows - few - some),
          static_cast<double>(shape.logit_rows),
          static_cast<double>(shape.row_context),
          static_cast<double>(shape.run_context)};
}

double PassCost::Predict(const PassShape& shape) const {
  const Terms features = Features(shape);
  double seconds = 0;
  for (size_t i = 0; i < features.size(); ++i) {
    seconds += weights_[i] * features[i];
  }
  return seconds;
}

void PassCost::Observe(const PassShape& shape, double seconds) {
  if (!(seconds > 0)) return;
  const Terms features = Features(shape);
  const double predicted = Predict(shape);
  Terms shares;
  double norm = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    shares[i] = weights_[i] * features[i] / predicted;
    norm += shares[i] * shares[i];
  }
  const double error = std::clamp(
      std::log(seconds / predicted), -kGreatestError, kGreatestError);
  // Each term moves in proportion to its part of the time, in logarithms: they
  // stay positive, and a term that this pass lacks stays what it is.
  for (size_t i = 0; i < shares.size(); ++i) {
    weights_[i] =
        Bounded(weights_[i] * std::exp(kRate * error * shares[i] / norm));
  }
}

}  // namespace specwire::verifier
