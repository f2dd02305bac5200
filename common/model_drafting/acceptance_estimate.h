// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

namespace specwire {

// How likely a draft token is accepted that its model held likely to a given
// degree, if all before it are. That is not the probability itself: a small
// model is surer than it is right, and noise that target and drafter share
// makes them agree more often than their probabilities say. So what became of
// earlier tokens is kept, in a few steps of probability, older ones counting
// less and less; nothing seen yet means the probability as it is.
//
// Thread safety: one thread at a time.
class AcceptanceEstimate {
 public:
  // In [0, 1]. REQUIRES: probability in [0, 1].
  double Chance(double probability) const;
  // What became of a token. REQUIRES: probability in [0, 1].
  void Observe(double probability, bool accepted);

 private:
  static constexpr size_t kNumSteps = 16;
  struct Step {
    double seen = 0;
    // How many more were accepted than their probabilities add up to.
    double surplus = 0;
  };
  static size_t StepOf(double probability);

  std::array<Step, kNumSteps> steps_;
};

}  // namespace specwire
