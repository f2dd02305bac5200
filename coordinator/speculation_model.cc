// SPDX-License-Identifier: Apache-2.0
#include "coordinator/speculation_model.h"

#include <algorithm>
#include <cmath>

#include "common/drafting/messages.h"

namespace specwire::coordinator {
namespace {

// Before an answer was timed, in plain passes: round trips, and a draft token.
constexpr double kGuessedAnswer = 0.15;
constexpr double kGuessedToken = 0.01;
// A streak that was not seen to grow at some length grows as it did before.
constexpr double kGrowGuess = 4;
constexpr double kFirstGrow = 0.7;
constexpr double kLongerGuess = 2;
// Patience covers answers so many deviations late.
constexpr double kDeviations = 4;

constexpr int kShortRun = 4;

}  // namespace

SpeculationModel::SpeculationModel(const SpeculationEstimates& estimates)
    : estimates_(estimates) {
  std::array<double, SpeculationEstimates::kNumRanges> grows;
  double before = kFirstGrow;
  for (size_t i = 0; i < grows.size(); ++i) {
    before = estimates.grows[i].Value(before, kGrowGuess);
    grows[i] = before;
  }
  std::array<double, kNumSpells> into_inside;
  for (size_t spell = 0; spell < kNumSpells; ++spell) {
    const SpeculationEstimates::Start& start = estimates.starts[spell];
    Survival& survival = survival_[spell];
    survival[0] = 1;
    survival[1] = start.first.Value();
    for (int i = 2; i <= kMost; ++i) {
      survival[static_cast<size_t>(i)] =
          survival[static_cast<size_t>(i - 1)] *
          grows[SpeculationEstimates::RangeOf(i)];
    }
    double sum = 0;
    for (size_t i = survival.size(); i-- > 0;) {
      sum += survival[i];
      tail_[spell][i] = sum;
    }
    into_inside[spell] = start.answered.Value() * survival[1];
  }
  // The chain's stationary distribution: failures lead step by step outside,
  // one draft that does not fail leads back.
  double reached = 1 - into_inside[0];
  double leaving = 0;
  for (int i = 1; i < kFailuresOutside; ++i) {
    leaving += reached;
    reached *= 1 - into_inside[1];
  }
  const double outside = reached / std::max(into_inside[2], 1e-6);
  const double sum = 1 + leaving + outside;
  share_ = {1 / sum, leaving / sum, outside / sum};
  for (size_t spell = 0; spell < kNumSpells; ++spell) {
    for (size_t i = 0; i < mean_survival_.size(); ++i) {
      mean_survival_[i] += share_[spell] * survival_[spell][i];
    }
  }
  rows_waiting_ = MostRows(0);
  rows_taking_ = MostRows(1);
}

double SpeculationModel::AnswerTime(double num_tokens) const {
  const double plain = estimates_.costs.plain();
  if (plain <= 0 || !estimates_.answer_time.known()) {
    return kGuessedAnswer + kGuessedToken * num_tokens;
  }
  return estimates_.answer_time.Expected(num_tokens) / plain;
}

double SpeculationModel::PerToken() const {
  const double plain = estimates_.costs.plain();
  if (plain <= 0 || !estimates_.answer_time.known()) return kGuessedToken;
  return estimates_.answer_time.PerToken() / plain;
}

int SpeculationModel::LongestRun() const {
  const double tokens = 1 / std::max(PerToken(), 1e-3);
  return static_cast<int>(
      std::clamp<double>(tokens, kShortRun, SpeculationEstimates::kMaxRun));
}

double SpeculationModel::ExpectedTokens(int run_length) const {
  double sum = 0;
  double before = 1;
  for (int i = 0; i < run_length; ++i) {
    const size_t at =
        static_cast<size_t>(std::min(i, SpeculationEstimates::kMaxRun - 1));
    if (i > 0) {
      before =
          std::min(before, estimates_.longer[at].Value(before, kLongerGuess));
    }
    sum += before;
  }
  return sum;
}

double SpeculationModel::Saved(size_t spell, int begin, int run_length) const {
  const Survival& survival = survival_[spell];
  // A draft that was waited for has its first token verified too.
  int rows = std::min(run_length, begin == 0 ? rows_waiting_ : rows_taking_);
  double pass = 1 + estimates_.costs.Added(ExpectedTokens(rows));
  double time = survival[static_cast<size_t>(begin)] * pass;
  const int first = begin + rows + 1;
  rows = std::min(run_length, rows_taking_);
  pass = 1 + estimates_.costs.Added(ExpectedTokens(rows));
  // A drafter that is slower than the verifier holds up all passes but the
  // first.
  pass = std::max(pass, (rows + 1) * PerToken());
  for (int i = first; i <= kMost; i += rows + 1) {
    time += survival[static_cast<size_t>(i)] * pass;
  }
  return tail_[spell][static_cast<size_t>(begin)] - time;
}

SpeculationModel::Outcome SpeculationModel::Evaluate(int run_length) const {
  const double answer = AnswerTime(ExpectedTokens(run_length));
  // Passes that begin before an answer is there that nobody waits for: one at
  // least, and one more or fewer by chance.
  const double passes = std::clamp(answer + 0.5, 1.0, kMost - 1.0);
  const int late = static_cast<int>(passes);
  const double part_later = passes - late;
  const double in_time = estimates_.in_time.Value();
  const double plain = estimates_.costs.plain();
  const double deviation =
      plain > 0 ? estimates_.answer_time.Deviation() / plain : 0;
  const double wanted = std::max(answer + kDeviations * deviation, 2 * answer);
  // Beside a pass that did not wait for it the drafter works.
  const double slowdown = estimates_.costs.Slowdown();

  Outcome outcome;
  double tokens = 0;
  double saved = 0;
  for (size_t spell = 0; spell < kNumSpells; ++spell) {
    const double saved_late =
        (1 - part_later) * Saved(spell, late, run_length) +
        part_later * Saved(spell, late + 1, run_length);
    const double answered = estimates_.starts[spell].answered.Value();
    Round& round = outcome.rounds[spell];
    const double saved_taking = answered * saved_late - slowdown;
    round.wait_worth = answered * Saved(spell, 0, run_length) - saved_taking;
    round.patience = std::min(wanted, std::max(round.wait_worth, 0.0));
    round.wait_gain =
        in_time * (round.wait_worth - answer) - (1 - in_time) * round.patience;
    tokens += share_[spell] * (1 + answered * (tail_[spell][0] - 1));
    round.saved = saved_taking + std::max(round.wait_gain, 0.0);
    saved += share_[spell] * round.saved;
  }
  // No draft makes tokens free.
  outcome.speedup = tokens / std::max(tokens - saved, 0.01 * tokens);
  return outcome;
}

double SpeculationModel::WorthwhileSurvival(
    double speedup, const std::array<bool, kNumSpells>& waits) const {
  const double passes =
      std::clamp(AnswerTime(1) + 0.5, 1.0, static_cast<double>(kMost));
  const auto late = static_cast<size_t>(passes);
  double answered = 0;
  double waited = 0;
  double verified = 0;
  for (size_t spell = 0; spell < kNumSpells; ++spell) {
    const double part =
        share_[spell] * estimates_.starts[spell].answered.Value();
    answered += part;
    if (waits[spell]) waited += part;
    verified += part * (waits[spell] ? 1 : survival_[spell][late] / passes);
  }
  const double row = estimates_.costs.Added(1);
  if (answered <= 0) return speedup * (PerToken() + row);
  return speedup * (PerToken() * waited + row * verified) / answered;
}

int SpeculationModel::Window(int run_length) const {
  const double answer = AnswerTime(ExpectedTokens(run_length));
  const double all_right = survival_[static_cast<size_t>(DraftSpell::kInside)]
                                    [static_cast<size_t>(run_length + 1)];
  const double cost =
      (1 - all_right) * PerToken() / 2 + estimates_.costs.Slowdown();
  if (all_right * answer < cost) return run_length;
  // What is committed while a run is on its way, and what is verified then.
  const int rows = std::min(run_length, rows_taking_);
  const double ahead = run_length + (rows + 1) * (1 + std::ceil(answer));
  return static_cast<int>(
      std::clamp<double>(ahead, 2 * run_length, kMaxWindow));
}

int SpeculationModel::MostRows(int begin) const {
  const double reached = mean_survival_[static_cast<size_t>(begin)];
  double expected = 1;
  int rows = 0;
  for (; rows < SpeculationEstimates::kMaxRun && begin + rows < kMost; ++rows) {
    const double now = 1 + estimates_.costs.Added(rows);
    const double more = 1 + estimates_.costs.Added(rows + 1);
    const double next = mean_survival_[static_cast<size_t>(begin + rows + 1)] /
                        std::max(reached, 1e-9);
    if (next * now <= (more - now) * expected) break;
    expected += next;
  }
  return std::max(rows, 1);
}

}  // namespace specwire::coordinator
