// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/coupled.h"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "common/kernels/maths.h"
#include "common/sampling/greedy.h"
#include "common/sampling/philox.h"
#include "common/sampling/pipeline.h"

namespace specwire {
namespace {

// A little above the noise's largest value.
constexpr double kLargestNoise = 22.88;
constexpr double kLeastNoise = -3.14;
constexpr int kStepsPerUnit = 16;
constexpr int kNumThresholds =
    static_cast<int>((kLargestNoise - kLeastNoise) * kStepsPerUnit) + 2;

// Entry i: words below it have less noise than kLeastNoise + i / kStepsPerUnit,
// whatever rounding did.
std::array<uint32_t, kNumThresholds> MakeThresholds() {
  std::array<uint32_t, kNumThresholds> thresholds{};
  for (int i = 0; i < kNumThresholds; ++i) {
    const double noise = kLeastNoise + static_cast<double>(i) / kStepsPerUnit;
    const double word = 0x1p32 * Exp(-Exp(-noise)) - 4.0;
    thresholds[static_cast<size_t>(i)] =
        word > 0 ? static_cast<uint32_t>(word) : 0;
  }
  return thresholds;
}

// Largest word whose noise is surely below `noise`: an integer comparison that
// spares most logarithms.
uint32_t WordThreshold(double noise) {
  static const std::array<uint32_t, kNumThresholds> kThresholds =
      MakeThresholds();
  if (noise <= kLeastNoise) return 0;
  const int index = static_cast<int>((noise - kLeastNoise) * kStepsPerUnit);
  return kThresholds[static_cast<size_t>(
      index < kNumThresholds ? index : kNumThresholds - 1)];
}

// The running maximum of score + noise at one position.
class Race {
 public:
  Race(uint64_t seed, int position, int32_t choice)
      : seed_(seed),
        position_(static_cast<uint32_t>(position)),
        choice_(static_cast<uint32_t>(choice)) {}

  // True if a token of this score could still win, whatever its noise.
  bool CanWin(double score) const { return score + kLargestNoise >= best_; }

  void Enter(int32_t token_id, double score) {
    if (!CanWin(score)) return;
    const uint32_t word = Word(static_cast<uint32_t>(token_id));
    if (word < WordThreshold(best_ - score)) return;
    const double total = score + GumbelNoise(word);
    if (total > best_ || (total == best_ && token_id < winner_)) {
      best_ = total;
      winner_ = token_id;
    }
  }

  double best() const { return best_; }
  int32_t winner() const { return winner_; }

 private:
  uint32_t Word(uint32_t token_id) {
    if (token_id / 4 != block_) {
      block_ = token_id / 4;
      words_ = Philox4x32({position_,
                           block_,
                           static_cast<uint32_t>(NoiseStream::kCoupled),
                           choice_},
                          seed_);
    }
    return words_[token_id % 4];
  }

  uint64_t seed_;
  uint32_t position_;
  uint32_t choice_;
  uint32_t block_ = 0xffffffff;
  std::array<uint32_t, 4> words_{};
  double best_ = -std::numeric_limits<double>::infinity();
  int32_t winner_ = -1;
};

}  // namespace

CoupledSampler::CoupledSampler(SamplingParams params, int32_t choice)
    : params_(std::move(params)),
      choice_(choice),
      greedy_(params_.temperature < kGreedyTemperature),
      uncut_(params_.min_p <= 0 && params_.top_k <= 0 && params_.top_p >= 1) {}

int32_t CoupledSampler::Choose(absl::Span<const float> logits,
                               int position) const {
  if (greedy_) return ArgMax(logits);
  Race race(static_cast<uint64_t>(params_.seed), position, choice_);
  if (!uncut_) {
    for (const Candidate& c : ApplyPipeline(logits, params_)) {
      race.Enter(c.token_id, c.score);
    }
    return race.winner();
  }
  // The likeliest token first: it sets a mark that most others cannot reach.
  const double temperature = static_cast<double>(params_.temperature);
  const int32_t likeliest = ArgMax(logits);
  if (likeliest < 0) return -1;
  race.Enter(likeliest,
             static_cast<double>(logits[static_cast<size_t>(likeliest)]) /
                 temperature);
  double least = (race.best() - kLargestNoise) * temperature;
  for (size_t i = 0; i < logits.size(); ++i) {
    // `least` is a shortcut only: Enter decides by the division, as above.
    if (!(static_cast<double>(logits[i]) >= least - 1e-3 * std::abs(least))) {
      continue;
    }
    const double before = race.best();
    race.Enter(static_cast<int32_t>(i),
               static_cast<double>(logits[i]) / temperature);
    if (race.best() != before) {
      least = (race.best() - kLargestNoise) * temperature;
    }
  }
  return race.winner();
}

}  // namespace specwire
