// SPDX-License-Identifier: Apache-2.0
#include "coordinator/speculation_estimates.h"

#include <algorithm>
#include <cmath>

namespace specwire::coordinator {
namespace {

// Weight of a new observation in a mean of times, in the long run.
constexpr double kTimeWeight = 1.0 / 16;
// Part of a draft's expected time that passes into oblivion with each answer
// that nobody waited for.
constexpr double kOblivion = 1.0 / 256;
// Variance of the number of tokens that stands for "all answers are alike", so
// that a cost for each token is not read out of noise.
constexpr double kTokenVariance = 1.0;
// Weight of a pass beside which the drafter worked, and how many such passes
// count for as much as the guess that it slows none.
constexpr double kSlowdownWeight = 1.0 / 64;
constexpr double kSlowdownGuess = 4;
// In plain passes: no more than that is told from chance.
constexpr double kSlowdownNoise = 0.05;
// Passes of a kind without which its rate is not known.
constexpr double kPassesToCompare = 16;
// Observations that the overall cost of a row counts for within a range.
constexpr double kRowGuess = 4;
// Plain passes without which nothing can be said of what rows add.
constexpr double kEnoughPlain = 2;
// Seconds; no answer is expected sooner.
constexpr double kLeastAnswer = 20e-6;
// One hiccup of the machine must not count like many passes.
constexpr double kMostTimesMean = 4;

double Step(double count, double weight) {
  return std::max(weight, 1 / (count + 1));
}

// 1 to 2, 3 to 4, 5 to 8, 9 to 16, 17 to 32, more.
size_t RowRange(double rows) {
  if (rows <= 2) return 0;
  if (rows <= 4) return 1;
  if (rows <= 8) return 2;
  if (rows <= 16) return 3;
  return rows <= 32 ? 4 : 5;
}

}  // namespace

void ChanceEstimate::Observe(bool hit, double weight) {
  hits = hits * (1 - weight) + (hit ? 1 : 0);
  trials = trials * (1 - weight) + 1;
}

void ChanceEstimate::LimitTrials(double most) {
  if (trials <= most) return;
  hits *= most / trials;
  trials = most;
}

void ChanceEstimate::Blend(const ChanceEstimate& other, double weight) {
  hits += weight * (other.hits - hits);
  trials += weight * (other.trials - trials);
}

void MeanEstimate::Observe(double value, double weight) {
  mean += Step(count, weight) * (value - mean);
  count = std::min(count + 1, 1 / weight);
}

void MeanEstimate::Blend(const MeanEstimate& other, double weight) {
  const double theirs = weight * other.count;
  const double ours = (1 - weight) * count;
  if (theirs + ours <= 0) return;
  mean = (mean * ours + other.mean * theirs) / (ours + theirs);
  count = ours + theirs;
}

void AnswerTime::Observe(int num_tokens, double seconds) {
  if (known()) {
    seconds = std::min(
        seconds,
        kMostTimesMean *
            std::max({Expected(num_tokens), 4 * deviation_, kLeastAnswer}));
  }
  const double error = count_ > 0 ? seconds - Expected(num_tokens) : 0;
  const double step = Step(count_, kTimeWeight);
  const double more_tokens = num_tokens - tokens_;
  const double more_seconds = seconds - seconds_;
  if (count_ > 0) {
    variance_ += step * ((1 - step) * more_tokens * more_tokens - variance_);
    covariance_ +=
        step * ((1 - step) * more_tokens * more_seconds - covariance_);
    deviation_ += step * (std::abs(error) - deviation_);
  } else {
    deviation_ = seconds / 4;
  }
  tokens_ += step * more_tokens;
  seconds_ += step * more_seconds;
  count_ = std::min(count_ + 1, 1 / kTimeWeight);
}

void AnswerTime::ObserveLater(double seconds) {
  count_ = std::max(count_, 1.0);
  // How much later is not known.
  seconds_ = std::max(seconds_, 2 * seconds);
}

void AnswerTime::ObserveWithin(double seconds) {
  if (!known()) return;
  if (seconds_ > seconds) {
    seconds_ += (0.75 * seconds - seconds_) / 4;
  } else {
    seconds_ *= 1 - kOblivion;
    // What comes next is to count for more.
    count_ = std::max(count_ * (1 - 4 * kOblivion), 1.0);
  }
}

void AnswerTime::Blend(const AnswerTime& other, double weight) {
  if (!other.known()) return;
  const double part = known() ? weight : 1;
  count_ += part * (other.count_ - count_);
  tokens_ += part * (other.tokens_ - tokens_);
  seconds_ += part * (other.seconds_ - seconds_);
  deviation_ += part * (other.deviation_ - deviation_);
  variance_ += part * (other.variance_ - variance_);
  covariance_ += part * (other.covariance_ - covariance_);
}

double AnswerTime::Expected(double num_tokens) const {
  // Extrapolating down must not lead below what a message takes.
  return std::max(seconds_ + PerToken() * (num_tokens - tokens_), seconds_ / 4);
}

double AnswerTime::PerToken() const {
  return std::max(covariance_, 0.0) / (variance_ + kTokenVariance);
}

void PassCosts::Observe(int num_draft_tokens, double seconds, bool alone) {
  if (seconds <= 0) return;
  if (num_draft_tokens == 0 && !alone && alone_) {
    slowdown_.Observe(std::clamp(seconds / plain_ - 1, -1.0, 1.0),
                      kSlowdownWeight);
    return;
  }
  // Until passes without draft tokens were seen, those with some stand in.
  if (num_draft_tokens == 0 || num_plain_ < kEnoughPlain) {
    const double plain = seconds / (1 + Added(num_draft_tokens));
    if (plain_ <= 0) {
      plain_ = plain;
    } else {
      plain_ +=
          kTimeWeight * (std::min(plain, kMostTimesMean * plain_) - plain_);
    }
    if (num_draft_tokens == 0) {
      alone_ = alone_ || alone;
      num_plain_ = std::min(num_plain_ + 1, 1 / kTimeWeight);
    }
    return;
  }
  // Below 0 too: cut off on one side, noise would make rows dear.
  const double row =
      std::clamp((seconds / plain_ - 1) / num_draft_tokens, -1.0, 1.0);
  row_.Observe(row, kTimeWeight);
  rows_[RowRange(num_draft_tokens)].Observe(row, kTimeWeight);
}

void PassCosts::Blend(const PassCosts& other, double weight) {
  if (other.plain_ <= 0) return;
  plain_ =
      plain_ > 0 ? plain_ + weight * (other.plain_ - plain_) : other.plain_;
  num_plain_ += weight * (other.num_plain_ - num_plain_);
  alone_ = alone_ || other.alone_;
  slowdown_.Blend(other.slowdown_, weight);
  row_.Blend(other.row_, weight);
  for (size_t i = 0; i < kNumRanges; ++i) {
    rows_[i].Blend(other.rows_[i], weight);
  }
}

double PassCosts::Added(double num_draft_tokens) const {
  const double row =
      rows_[RowRange(num_draft_tokens)].Value(row_.mean, kRowGuess);
  return num_draft_tokens * std::max(row, 0.005);
}

double PassCosts::Slowdown() const {
  const double value = slowdown_.Value(0, kSlowdownGuess);
  return value > kSlowdownNoise ? value : 0;
}

size_t SpeculationEstimates::RangeOf(int length) {
  if (length <= 4) return static_cast<size_t>(std::max(length, 2) - 2);
  if (length <= 6) return 3;
  if (length <= 8) return 4;
  if (length <= 12) return 5;
  if (length <= 16) return 6;
  if (length <= 24) return 7;
  return length <= 32 ? 8 : 9;
}

void SpeculationEstimates::LimitTrials(double most) {
  for (Start& start : starts) {
    start.answered.LimitTrials(most);
    start.first.LimitTrials(most);
  }
  for (ChanceEstimate& grow : grows) grow.LimitTrials(most);
  for (ChanceEstimate& more : longer) more.LimitTrials(most);
  in_time.LimitTrials(most);
  for (MeanEstimate* mean : {&asked.tokens, &asked.seconds}) {
    // Not fewer than tell something.
    mean->count = std::min(mean->count, std::max(most, kPassesToCompare));
  }
}

double SpeculationEstimates::MeasuredGain() const {
  if (std::min(asked.seconds.count, alone.seconds.count) < kPassesToCompare) {
    return 1;
  }
  return asked.tokens.mean / asked.seconds.mean * alone.seconds.mean /
         alone.tokens.mean;
}

void SpeculationEstimates::Blend(const SpeculationEstimates& other,
                                 double weight) {
  for (size_t i = 0; i < kNumSpells; ++i) {
    starts[i].answered.Blend(other.starts[i].answered, weight);
    starts[i].first.Blend(other.starts[i].first, weight);
  }
  for (size_t i = 0; i < kNumRanges; ++i) {
    grows[i].Blend(other.grows[i], weight);
  }
  for (size_t i = 0; i < kMaxRun; ++i) longer[i].Blend(other.longer[i], weight);
  answer_time.Blend(other.answer_time, weight);
  costs.Blend(other.costs, weight);
  in_time.Blend(other.in_time, weight);
  drafter_estimates = drafter_estimates || other.drafter_estimates;
  whole.Blend(other.whole, weight);
  whole_expected.Blend(other.whole_expected, weight);
  local_tokens.Blend(other.local_tokens, weight);
  local_time.Blend(other.local_time, weight);
  asked.tokens.Blend(other.asked.tokens, weight);
  asked.seconds.Blend(other.asked.seconds, weight);
  alone.tokens.Blend(other.alone.tokens, weight);
  alone.seconds.Blend(other.alone.seconds, weight);
}

}  // namespace specwire::coordinator
