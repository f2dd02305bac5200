// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/survival.h"

#include <algorithm>
#include <cstddef>

namespace specwire::verifier {
namespace {

// What is believed before anything is seen, and as how many tokens that counts.
constexpr double kPrior = 0.75;
constexpr double kPriorWeight = 2;
// As how many tokens the estimate over all places counts at one of them.
constexpr double kOverallWeight = 2;
// What remains of a count with each new token of all places, of the same
// place, and of another place: about the latest 16, 12 and 100 tokens count.
constexpr double kKeepOverall = 0.94;
constexpr double kKeepHere = 0.92;
constexpr double kKeepElsewhere = 0.99;

}  // namespace

void Survival::OnVerified(int num_proposed, int num_accepted) {
  for (int i = 0; i < num_proposed && i <= num_accepted; ++i) {
    OnCompared(i, i < num_accepted);
  }
}

void Survival::OnCompared(int place, bool equal) {
  const auto here = static_cast<size_t>(std::min(place, kPlaces - 1));
  for (size_t i = 0; i < places_.size(); ++i) {
    places_[i].Fade(i == here ? kKeepHere : kKeepElsewhere);
  }
  places_[here].Add(equal);
  all_.Fade(kKeepOverall);
  all_.Add(equal);
}

double Survival::Overall() const {
  return (all_.right + kPrior * kPriorWeight) / (all_.seen + kPriorWeight);
}

double Survival::Acceptance(int place) const {
  const Counts& counts =
      places_[static_cast<size_t>(std::min(place, kPlaces - 1))];
  return (counts.right + Overall() * kOverallWeight) /
         (counts.seen + kOverallWeight);
}

}  // namespace specwire::verifier
