// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "coordinator/speculation_estimates.h"

namespace specwire::coordinator {

// What to expect of drafts by given estimates: the rate of tokens against plain
// decoding as a function of the settings. Times are in plain passes.
//
// Time is cut into *rounds*: one begins when nothing is left to verify and ends
// when that is so again. In it the drafter is asked, with the chance P of its
// spell it answers, and then follows a streak that reaches length i with the
// chance s_i (s_0 = 1). A round commits 1 + P (s_1 + s_2 + ...) tokens whether
// its draft was waited for or not, so rounds begin at the same tokens in either
// case and what one saves says nothing of the next; only which spell they are
// in does, which is a Markov chain with the chances P s_1 to be inside next.
// With k the rows that a pass verifies, run length or the verifier's own limit,
// and v its time by those of them that are offered, a pass begins at the
// lengths d, d + k + 1, ... of a streak, so that against plain decoding of the
// same tokens
//   saved(d) = (s_d + s_(d+1) + ...) - v (s_d + s_(d+k+1) + ...)
// where d is 0 for a draft that was waited for, and for one that was not, the
// number of plain passes that begin before it is there. A wait costs the time
// of the answer a, or the patience p where it is missed, so with the chance t
// of an answer in time it saves
//   t (P (saved(0) - saved(d)) - a) - (1 - t) p
// more. Beside a pass that waits for nothing the drafter works, which slows the
// pass where both share processors; so does a window beyond a run. The cycle of
// guides/performance.md 2.3 is the case P = t = 1 with runs
// that are never continued.
class SpeculationModel {
 public:
  explicit SpeculationModel(const SpeculationEstimates& estimates);

  struct Round {
    // How much more is saved by waiting for the draft; below 0: not to be.
    double wait_gain = 0;
    // What its draft saves over a plain pass, waited for or not.
    double saved = 0;
    // What a draft that is there at once saves over one that is taken as it
    // comes: no wait is worth more.
    double wait_worth = 0;
    // Patience that fits.
    double patience = 0;
  };
  struct Outcome {
    // Each round waiting or not, whichever is better.
    double speedup = 1;
    // By DraftSpell.
    std::array<Round, kNumSpells> rounds;
  };
  // REQUIRES: run_length >= 1.
  Outcome Evaluate(int run_length) const;
  // The longest run that is drafted within a pass, but four tokens: while a
  // longer one is on its way, passes go by for which its first tokens would
  // have been there.
  int LongestRun() const;
  // Tokens of a run that are offered at all.
  double ExpectedTokens(int run_length) const;
  // The survival below which a further token of a run costs more than it
  // brings at a given rate (guides/performance.md 2.4), where the spells wait
  // or not: a run that is not waited for holds up nobody while it is drafted,
  // and its tokens are verified only if those that the verifier finds by itself
  // meanwhile were right.
  double WorthwhileSurvival(double speedup,
                            const std::array<bool, kNumSpells>& waits) const;
  // How far a drafter should be ahead of the last commit it knows: so far that
  // the verifier never runs out while all is right, or not beyond a run where
  // that saves less than the next answer is delayed by useless tokens.
  int Window(int run_length) const;

 private:
  static constexpr int kMost = SpeculationEstimates::kMaxStreak;
  using Survival = std::array<double, kMost + 1>;

  // In plain passes.
  double AnswerTime(double num_tokens) const;
  double PerToken() const;
  // Draft tokens that a verifier takes into a pass at the length `begin` of a
  // streak, given many: it adds them while each brings more than it costs.
  int MostRows(int begin) const;
  // What the verified part of a streak saves that is verified from the length
  // `begin` on.
  double Saved(size_t spell, int begin, int run_length) const;

  const SpeculationEstimates& estimates_;
  // By DraftSpell: entry i is s_i; the sum from there on.
  std::array<Survival, kNumSpells> survival_;
  std::array<Survival, kNumSpells> tail_;
  // Share of rounds that begin in each, and the survival over all.
  std::array<double, kNumSpells> share_ = {};
  Survival mean_survival_ = {};
  // Of passes at a streak's beginning, and later.
  int rows_waiting_ = 1;
  int rows_taking_ = 1;
};

}  // namespace specwire::coordinator
