// SPDX-License-Identifier: Apache-2.0
#include "common/model/step_costs.h"

#include <algorithm>
#include <tuple>

namespace specwire {
namespace {

// Assumed of verifiers that tell no costs.
constexpr StepCosts::Point kGuess[] = {{1, absl::Milliseconds(20)},
                                       {64, absl::Milliseconds(80)}};
// Longer than any pass.
constexpr absl::Duration kLongestPass = absl::Hours(1);

}  // namespace

StepCosts::StepCosts() : StepCosts(kGuess) {}

StepCosts::StepCosts(absl::Span<const Point> points) {
  for (const Point& point : points.first(std::min(points.size(), kMaxPoints))) {
    if (point.num_rows < 1 || point.duration <= absl::ZeroDuration()) continue;
    samples_.push_back(
        {static_cast<double>(point.num_rows),
         absl::ToDoubleSeconds(std::min(point.duration, kLongestPass))});
  }
  if (samples_.empty()) {
    *this = StepCosts();
    return;
  }
  std::sort(
      samples_.begin(), samples_.end(), [](const Sample& a, const Sample& b) {
        return std::tie(a.num_rows, b.seconds) <
               std::tie(b.num_rows, a.seconds);
      });
  // Of equal rows the first is the dearest.
  samples_.erase(std::unique(samples_.begin(),
                             samples_.end(),
                             [](const Sample& a, const Sample& b) {
                               return a.num_rows == b.num_rows;
                             }),
                 samples_.end());
  double dearest = 0;
  for (Sample& sample : samples_) {
    dearest = std::max(dearest, sample.seconds);
    sample.seconds = dearest;
  }
}

double StepCosts::PassSeconds(double num_rows) const {
  if (num_rows <= samples_.front().num_rows || samples_.size() == 1) {
    return samples_.front().seconds;
  }
  size_t end = 1;
  while (end + 1 < samples_.size() && samples_[end].num_rows < num_rows) ++end;
  const Sample& from = samples_[end - 1];
  const Sample& to = samples_[end];
  return from.seconds + (num_rows - from.num_rows) *
                            (to.seconds - from.seconds) /
                            (to.num_rows - from.num_rows);
}

}  // namespace specwire
