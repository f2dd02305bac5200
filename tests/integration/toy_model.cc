// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/toy_model.h"

#include <cstddef>

namespace specwire::simulation {
namespace {

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A hash of the length and the last three tokens.
uint64_t HashPrefix(uint64_t seed, absl::Span<const int32_t> prefix) {
  uint64_t hash = Mix(seed + 0x9e3779b97f4a7c15u * (prefix.size() + 1));
  for (size_t i = prefix.size() < 3 ? 0 : prefix.size() - 3; i < prefix.size();
       ++i) {
    hash = Mix(hash +
               0x9e3779b97f4a7c15u * (static_cast<uint64_t>(prefix[i]) + 1));
  }
  return hash;
}

double ToUnit(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace

uint64_t Rng::Next() {
  state_ += 0x9e3779b97f4a7c15u;
  return Mix(state_);
}

int Rng::Below(int n) {
  return n <= 1 ? 0
                : static_cast<int>((Next() >> 32) * static_cast<uint64_t>(n) >>
                                   32);
}

bool Rng::Chance(double probability) {
  return probability > 0 && ToUnit(Next()) < probability;
}

int32_t ToyTarget(uint64_t seed, absl::Span<const int32_t> prefix) {
  const uint64_t hash = HashPrefix(seed, prefix);
  return hash % 32 == 0 ? kToyStop : static_cast<int32_t>((hash >> 8) % 5);
}

int32_t ToyGuess(uint64_t seed,
                 absl::Span<const int32_t> prefix,
                 double quality,
                 uint64_t salt) {
  const uint64_t hash = HashPrefix(salt, prefix);
  return ToUnit(hash) < quality ? ToyTarget(seed, prefix)
                                : static_cast<int32_t>(hash % kToyVocabulary);
}

bool EndsWithToyStopText(absl::Span<const int32_t> completion) {
  const size_t size = completion.size();
  return size >= 2 && completion[size - 2] == 3 && completion[size - 1] == 1;
}

ToyText ToyDecode(uint64_t seed,
                  const std::vector<int32_t>& prompt,
                  int max_tokens,
                  bool stops,
                  bool stop_text) {
  std::vector<int32_t> text = prompt;
  ToyText result;
  while (static_cast<int>(result.tokens.size()) < max_tokens) {
    const int32_t token = ToyTarget(seed, text);
    text.push_back(token);
    result.tokens.push_back(token);
    if (stops && token == kToyStop) {
      result.finish = FinishReason::kStop;
      break;
    }
    if (stop_text && EndsWithToyStopText(result.tokens)) {
      result.finish = FinishReason::kStop;
      result.stop_text = true;
      break;
    }
  }
  return result;
}

}  // namespace specwire::simulation
