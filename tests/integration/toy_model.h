// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "absl/types/span.h"
#include "common/sampling/params.h"

namespace specwire::simulation {

// A small random number generator: SplitMix64.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // In [0, n); 0 for n <= 1.
  int Below(int n);
  bool Chance(double probability);
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Below(static_cast<int>(values.size()))];
  }

 private:
  uint64_t state_;
};

inline constexpr int kToyVocabulary = 6;
// The token that ends a text, where it is asked to.
inline constexpr int32_t kToyStop = 5;

// The target's token after `prefix`: a pure function of seed and prefix, as
// under the coupled rule.
int32_t ToyTarget(uint64_t seed, absl::Span<const int32_t> prefix);

// A drafter's guess at it, right with probability `quality` and a pure function
// of its arguments.
int32_t ToyGuess(uint64_t seed,
                 absl::Span<const int32_t> prefix,
                 double quality,
                 uint64_t salt);

// Whether the end of a completion is the text that ends it, where it is asked
// to.
bool EndsWithToyStopText(absl::Span<const int32_t> completion);

// The completion by plain decoding.
struct ToyText {
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::kLength;
  // A text stopped it, not a token.
  bool stop_text = false;
};
ToyText ToyDecode(uint64_t seed,
                  const std::vector<int32_t>& prompt,
                  int max_tokens,
                  bool stops,
                  bool stop_text);

}  // namespace specwire::simulation
