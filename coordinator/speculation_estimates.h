// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

namespace specwire::coordinator {

// A chance, estimated from trials of which earlier ones count for less. The
// trials that stand behind it also say how much it is worth beside what others
// have seen.
struct ChanceEstimate {
  double hits = 0;
  double trials = 0;

  void Observe(bool hit, double weight);
  // As if only so many trials stood behind it.
  void LimitTrials(double most);
  // Takes over a part of what somebody else has seen.
  void Blend(const ChanceEstimate& other, double weight);
  double Value() const { return trials > 0 ? hits / trials : 0; }
  // Drawn towards `guess`, which counts for `trials_of_guess`.
  double Value(double guess, double trials_of_guess) const {
    return (hits + guess * trials_of_guess) / (trials + trials_of_guess);
  }
};

// A mean that forgets, with the observations behind it.
struct MeanEstimate {
  double mean = 0;
  double count = 0;

  void Observe(double value, double weight);
  void Blend(const MeanEstimate& other, double weight);
  double Value(double guess, double count_of_guess) const {
    return (mean * count + guess * count_of_guess) / (count + count_of_guess);
  }
};

// The time from the end of a pass until its draft is there, in seconds: a fixed
// part, which is round trips, and a part for each draft token.
class AnswerTime {
 public:
  // The answer had `num_tokens`.
  void Observe(int num_tokens, double seconds);
  // It did not come within that.
  void ObserveLater(double seconds);
  // Nobody waits for it, but it comes within that; what was seen when it was
  // waited for grows old.
  void ObserveWithin(double seconds);
  void Blend(const AnswerTime& other, double weight);

  // Nothing was observed: the rest means nothing.
  bool known() const { return count_ > 0; }
  double Expected(double num_tokens) const;
  // What a draft token adds.
  double PerToken() const;
  // How far answers are from what is expected.
  double Deviation() const { return deviation_; }

 private:
  double count_ = 0;
  double tokens_ = 0;
  double seconds_ = 0;
  double deviation_ = 0;
  double variance_ = 0;
  double covariance_ = 0;
};

// What a pass costs by the draft tokens in it.
class PassCosts {
 public:
  // `alone`: the drafter had nothing to do meanwhile, so that it shows what a
  // plain pass takes; others do only until such were seen, and then what the
  // drafter slows it by.
  void Observe(int num_draft_tokens, double seconds, bool alone = true);
  void Blend(const PassCosts& other, double weight);
  // Seconds of a pass without draft tokens; 0: none was seen.
  double plain() const { return plain_; }
  // What `num_draft_tokens` add to it, in plain passes.
  double Added(double num_draft_tokens) const;
  // What a drafter that works meanwhile adds to it, in plain passes: something
  // where both share processors. At least 0.
  double Slowdown() const;

 private:
  static constexpr size_t kNumRanges = 6;

  double plain_ = 0;
  double num_plain_ = 0;
  // Of them, those that were alone.
  bool alone_ = false;
  MeanEstimate slowdown_;
  // For each draft token, in plain passes: over all passes, and by ranges of
  // their number.
  MeanEstimate row_ = {.mean = 0.08, .count = 4};
  std::array<MeanEstimate, kNumRanges> rows_;
};

// Good drafts come in spells: where the one before was right, the next one
// likely is. A draft fails if there is none, or if its first token is wrong.
enum class DraftSpell {
  kInside,   // The last one did not fail.
  kLeaving,  // A few have failed, fewer than kFailuresOutside.
  kOutside,
};
inline constexpr size_t kNumSpells = 3;
inline constexpr int kFailuresOutside = 3;

// What is known of how drafts fare, in averages that forget.
//
// A *streak* is a drafter's path that commits agree with, token by token, from
// the first one that it drafted with nothing outstanding.
struct SpeculationEstimates {
  // Streaks are told apart up to this length.
  static constexpr int kMaxStreak = 64;
  // Longest run that a drafter is asked for, see kMaxRunLength.
  static constexpr int kMaxRun = 32;

  struct Start {
    // A drafter that is asked has something to propose.
    ChanceEstimate answered;
    // Its first token is right.
    ChanceEstimate first;
  };
  // By DraftSpell.
  std::array<Start, kNumSpells> starts = {
      Start{{.hits = 1.6, .trials = 2}, {.hits = 1.4, .trials = 2}},
      Start{{.hits = 1.2, .trials = 2}, {.hits = 1.1, .trials = 2}},
      Start{{.hits = 1, .trials = 2}, {.hits = 0.8, .trials = 2}}};
  // A streak grows by one more token, by ranges of its length.
  static constexpr size_t kNumRanges = 10;
  std::array<ChanceEstimate, kNumRanges> grows = {};
  // Entry i: a run has more than i tokens.
  std::array<ChanceEstimate, kMaxRun> longer = {};
  AnswerTime answer_time;
  PassCosts costs;
  // A step that waited had its answer in time.
  ChanceEstimate in_time = {.hits = 4, .trials = 4};
  // The drafter says how sure it is of a run; and how often such runs were
  // right to the end, and were said to be.
  bool drafter_estimates = false;
  ChanceEstimate whole = {.hits = 4, .trials = 8};
  MeanEstimate whole_expected = {.mean = 0.5, .count = 8};
  // Of passes with local drafts: the tokens that they commit, and the time that
  // they take in plain passes.
  MeanEstimate local_tokens;
  MeanEstimate local_time;
  // Passes for which a proposal could have been of use, with the drafter asked
  // and without: the tokens that they commit, and their seconds, waits
  // included. What no model knows, such as who computes beside whom, is in
  // them.
  struct Rate {
    MeanEstimate tokens;
    MeanEstimate seconds;
  };
  Rate asked;
  Rate alone;
  // Their rates' ratio; 1 until both are known well enough.
  double MeasuredGain() const;

  // Whether drafts paid when they were last judged.
  bool pays = true;
  // Tokens from a judgement that drafts do not pay to the next attempt; it
  // grows with each attempt that fails.
  int pause_tokens = 16;

  // Index into `grows` of a streak's `length`-th token, 2 or more.
  static size_t RangeOf(int length);
  // So that what is seen from now on soon counts for more.
  void LimitTrials(double most);
  // Takes over a part of what another sequence has seen; `pays` and
  // pause_tokens stay.
  void Blend(const SpeculationEstimates& other, double weight);
};

}  // namespace specwire::coordinator
