// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/coupled.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "common/kernels/maths.h"
#include "common/sampling/greedy.h"
#include "common/sampling/philox.h"
#include "common/sampling/row_kernels.h"

namespace specwire {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();

// A little above the noise's largest value.
constexpr double kLargestNoise = 22.88;
constexpr double kLeastNoise = -3.14;
constexpr int kStepsPerUnit = 16;
constexpr int kNumThresholds =
    static_cast<int>((kLargestNoise - kLeastNoise) * kStepsPerUnit) + 2;
// Groups between two looks at the mark that is to be beaten.
constexpr size_t kGroupsTogether = 64;
// The tokens that are tried first: so near to the likeliest, and so many.
constexpr double kNear = 3;
constexpr int kMostNear = 256;

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

}  // namespace

// The running maximum of score + noise at one position. The winner does not
// depend on the order in which tokens enter, nor on whether one enters twice.
class CoupledSampler::Race {
 public:
  Race(uint64_t seed, int position, int32_t choice)
      : key_{.seed = seed,
             .position = static_cast<uint32_t>(position),
             .stream = static_cast<uint32_t>(NoiseStream::kCoupled),
             .choice = static_cast<uint32_t>(choice)} {}

  // True if a token of this score could still win, whatever its noise.
  bool CanWin(double score) const { return score + kLargestNoise >= best_; }

  // A token of this score cannot win with a word below this. REQUIRES:
  // CanWin(score).
  uint32_t Threshold(double score) const {
    // The subtraction and the sum that it stands for are rounded; where scores
    // are huge, that is no trifle beside the noise.
    const double slack = std::abs(best_) * 0x1p-50;
    return best_ > -kInfinity ? WordThreshold(best_ - score - slack) : 0;
  }

  void Enter(int32_t token_id, double score) {
    if (!CanWin(score)) return;
    const uint32_t word = Word(static_cast<uint32_t>(token_id));
    if (word < Threshold(score)) return;
    const double total = score + GumbelNoise(word);
    if (total > best_ || (total == best_ && token_id < winner_)) {
      best_ = total;
      winner_ = token_id;
    }
  }

  const NoiseKey& key() const { return key_; }
  int32_t winner() const { return winner_; }

 private:
  uint32_t Word(uint32_t token_id) {
    if (token_id / 4 != block_) {
      block_ = token_id / 4;
      words_ = Philox4x32({key_.position, block_, key_.stream, key_.choice},
                          key_.seed);
    }
    return words_[token_id % 4];
  }

  const NoiseKey key_;
  uint32_t block_ = 0xffffffff;
  std::array<uint32_t, 4> words_{};
  double best_ = -kInfinity;
  int32_t winner_ = -1;
};

CoupledSampler::CoupledSampler(SamplingParams params,
                               int32_t choice,
                               SequenceContext context)
    : pipeline_(std::move(params), std::move(context)),
      choice_(choice),
      temperature_(static_cast<double>(pipeline_.params().temperature)) {}

int32_t CoupledSampler::Choose(absl::Span<const float> logits,
                               const TokenHistory& history) {
  const absl::Span<const float> row = pipeline_.Process(logits, history);
  if (pipeline_.greedy()) {
    const int32_t token = ArgMax(row);
    return token >= 0 && row[static_cast<size_t>(token)] > -kFloatInfinity
               ? token
               : -1;
  }
  Race race(static_cast<uint64_t>(params().seed), history.position(), choice_);
  if (pipeline_.uncut()) {
    EnterUncut(row, &race);
    return race.winner();
  }
  const absl::Span<const Candidate> candidates = pipeline_.Cut(row);
  const auto likeliest = std::max_element(
      candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
        return a.score < b.score;
      });
  // The likeliest token first: it sets a mark that many others cannot reach.
  if (likeliest != candidates.end()) {
    race.Enter(likeliest->token_id, likeliest->score);
  }
  for (const Candidate& c : candidates) race.Enter(c.token_id, c.score);
  return race.winner();
}

void CoupledSampler::EnterUncut(absl::Span<const float> row, Race* race) {
  maxima_.Compute(row);
  if (maxima_.largest() == -kFloatInfinity) return;
  if (maxima_.largest() == kFloatInfinity) {
    // They leave only each other.
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i] == kFloatInfinity) race->Enter(static_cast<int32_t>(i), 0.0);
    }
    return;
  }
  EnterLikeliest(row, race);
  const size_t num_groups = maxima_.groups().size();
  for (size_t g = 0; g < num_groups; g += kGroupsTogether) {
    EnterGroups(row, g, std::min(g + kGroupsTogether, num_groups), race);
  }
}

// These set a mark that most others cannot reach.
void CoupledSampler::EnterLikeliest(absl::Span<const float> row, Race* race) {
  const float largest = maxima_.largest();
  // Which tokens these are changes nothing but the time it takes.
  const float near = largest - static_cast<float>(kNear * temperature_);
  const absl::Span<const float> groups = maxima_.groups();
  int entered = 0;
  for (size_t g = 0; g < groups.size() && entered < kMostNear; ++g) {
    if (!(groups[g] >= near)) continue;
    const size_t begin = g * kGroupTokens;
    const size_t end = std::min(begin + kGroupTokens, row.size());
    for (size_t i = begin; i < end; ++i) {
      if (!(row[i] >= near)) continue;
      race->Enter(static_cast<int32_t>(i),
                  static_cast<double>(row[i]) / temperature_);
      ++entered;
    }
  }
}

void CoupledSampler::EnterGroups(absl::Span<const float> row,
                                 size_t begin,
                                 size_t end,
                                 Race* race) {
  groups_.clear();
  thresholds_.clear();
  for (size_t g = begin; g < end; ++g) {
    const double score =
        static_cast<double>(maxima_.groups()[g]) / temperature_;
    if (!race->CanWin(score)) continue;
    groups_.push_back(static_cast<uint32_t>(g));
    thresholds_.push_back(race->Threshold(score));
  }
  hits_.resize(groups_.size());
  const int64_t num_hits =
      BestRowKernels().sieve(race->key(),
                             groups_.data(),
                             thresholds_.data(),
                             static_cast<int64_t>(groups_.size()),
                             hits_.data());
  for (const uint32_t g :
       absl::MakeConstSpan(hits_).first(static_cast<size_t>(num_hits))) {
    const size_t first = size_t{g} * kGroupTokens;
    const size_t last = std::min(first + kGroupTokens, row.size());
    for (size_t i = first; i < last; ++i) {
      if (!(row[i] > -kFloatInfinity)) continue;
      race->Enter(static_cast<int32_t>(i),
                  static_cast<double>(row[i]) / temperature_);
    }
  }
}

}  // namespace specwire
