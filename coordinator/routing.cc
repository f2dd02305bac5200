// SPDX-License-Identifier: Apache-2.0
#include "coordinator/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

namespace specwire::coordinator {
namespace {

// Most completions end by themselves before their budget does.
constexpr int kTokensOfACompletion = 256;
// So much later is about as soon: costs are measured no better.
constexpr double kAsSoon = 1.05;
// Passes whose times differ by no more than that are alike.
constexpr double kLeastSlowdown = 1.25;
constexpr double kLeastSpeedup = 0.8;
constexpr double kGreatestSlowdown = 100;
// A sequence more delays a draft node's answers by about that much; less is
// noise.
constexpr absl::Duration kDelayOfASequence = absl::Milliseconds(1);
constexpr absl::Duration kLongestRoundTrip = absl::Minutes(1);
// Tokens in a block of a prefix cache.
constexpr int kBlockTokens = 16;

}  // namespace

double TrustedSlowdown(double reported) {
  // Also for one that is not a number.
  if (!(reported > 0)) return 1;
  if (reported >= kLeastSpeedup && reported <= kLeastSlowdown) return 1;
  return std::clamp(reported, 1 / kGreatestSlowdown, kGreatestSlowdown);
}

double ExpectedSeconds(const VerifierCandidate& verifier,
                       const SequenceNeed& need) {
  const int all = verifier.num_sequences + 1;
  const int running =
      verifier.max_running > 0 ? std::min(all, verifier.max_running) : all;
  // Prompts are read in passes that are as long as they may be. What is cached
  // of those ahead is not known.
  const auto to_read = static_cast<double>(
      verifier.unread_tokens +
      std::max(need.num_tokens - verifier.cached_tokens, 1));
  // Drafts give sequences more rows and fewer passes, on all verifiers of a
  // model alike, so plain passes stand for them. Those that wait take turns
  // with those that run.
  const double num_passes = std::min(need.max_tokens, kTokensOfACompletion);
  return verifier.slowdown *
         (verifier.costs->PassSeconds(to_read) +
          num_passes * verifier.costs->PassSeconds(running) * all / running);
}

size_t PickVerifier(absl::Span<const VerifierCandidate> verifiers,
                    const SequenceNeed& need) {
  std::vector<double> seconds;
  seconds.reserve(verifiers.size());
  for (const VerifierCandidate& verifier : verifiers) {
    seconds.push_back(ExpectedSeconds(verifier, need));
  }
  const double least = *std::min_element(seconds.begin(), seconds.end());
  // The lower comes first.
  const auto order = [&verifiers](size_t i) {
    return std::tuple(verifiers[i].num_sequences,
                      -verifiers[i].cached_tokens,
                      std::numeric_limits<uint64_t>::max() - verifiers[i].rank);
  };
  size_t best = verifiers.size();
  for (size_t i = 0; i < verifiers.size(); ++i) {
    if (seconds[i] > least * kAsSoon) continue;
    if (best == verifiers.size() || order(i) < order(best)) best = i;
  }
  return best;
}

size_t PickDrafter(absl::Span<const DrafterCandidate> drafters) {
  const auto order = [&drafters](size_t i) {
    const DrafterCandidate& drafter = drafters[i];
    const auto delays = static_cast<int>(std::clamp(drafter.round_trip,
                                                    absl::ZeroDuration(),
                                                    kLongestRoundTrip) /
                                         kDelayOfASequence);
    const int beside = drafter.beside_verifier ? 1 : 0;
    return std::tuple(drafter.num_sequences + delays - beside,
                      -beside,
                      drafter.num_sequences);
  };
  size_t best = 0;
  for (size_t i = 1; i < drafters.size(); ++i) {
    if (order(i) < order(best)) best = i;
  }
  return best;
}

void PrefixHomes::Note(const SequenceNeed& need, const std::string& node_id) {
  if (need.affinity == 0) return;
  Place& place = places_[need.affinity % kNumPlaces];
  if (place.affinity != need.affinity) {
    place = Place();
    place.affinity = need.affinity;
  }
  // Where it stood, or else where the oldest stands, all before move up.
  size_t at = 0;
  while (at + 1 < kNumHomes && place.homes[at].node_id != node_id) ++at;
  std::move_backward(place.homes.begin(),
                     place.homes.begin() + at,
                     place.homes.begin() + at + 1);
  place.homes[0] = {node_id, need.num_tokens};
}

int PrefixHomes::CachedTokens(const SequenceNeed& need,
                              const std::string& node_id) const {
  const Place& place = places_[need.affinity % kNumPlaces];
  if (need.affinity == 0 || place.affinity != need.affinity) return 0;
  for (const Home& home : place.homes) {
    if (home.node_id != node_id) continue;
    // The last token is computed in any case.
    const int shared = std::min(home.num_tokens, need.num_tokens - 1);
    return std::max(shared, 0) / kBlockTokens * kBlockTokens;
  }
  return 0;
}

void RoundTrip::Observe(absl::Duration round_trip) {
  kept_[num_observed_ % kNumKept] = round_trip;
  ++num_observed_;
}

absl::Duration RoundTrip::shortest() const {
  if (num_observed_ == 0) return absl::ZeroDuration();
  return *std::min_element(kept_.begin(),
                           kept_.begin() + std::min(num_observed_, kNumKept));
}

}  // namespace specwire::coordinator
