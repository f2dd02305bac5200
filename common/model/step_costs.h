// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace specwire {

// What a verifier's passes take by their rows: as measured, with straight lines
// between the measurements and behind the last.
//
// Thread safety: any thread while nobody changes it.
class StepCosts {
 public:
  struct Point {
    int num_rows = 0;
    absl::Duration duration;
  };
  // More points than this are not kept.
  static constexpr size_t kMaxPoints = 64;

  // A common machine's proportions, for verifiers that do not tell.
  StepCosts();
  // In any order. A point without rows or time is left out, and more rows are
  // never cheaper than fewer. Without a point left as StepCosts().
  explicit StepCosts(absl::Span<const Point> points);

  // Seconds of a pass, > 0. REQUIRES: num_rows >= 0.
  double PassSeconds(double num_rows) const;

 private:
  struct Sample {
    double num_rows = 0;
    double seconds = 0;
  };

  // By rows, none twice; not empty.
  std::vector<Sample> samples_;
};

}  // namespace specwire
