// SPDX-License-Identifier: Apache-2.0
#include "coordinator/speculation_control.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "common/drafting/messages.h"

namespace specwire::coordinator {
namespace {

static_assert(SpeculationEstimates::kMaxRun == kMaxRunLength);

// Weights of a new observation, in the long run. Whether there is a draft at
// all is forgotten last: outside spells that is rare, and what comes of it
// must not be forgotten meanwhile.
constexpr double kAnsweredWeight = 1.0 / 64;
// Outside spells a rare success must weigh against many failures.
constexpr double kFirstWeight = 1.0 / 24;
constexpr double kFirstWeightOutside = 1.0 / 64;
constexpr double kGrowsWeight = 1.0 / 32;
constexpr double kLongerWeight = 1.0 / 16;
constexpr double kInTimeWeight = 1.0 / 8;
constexpr double kWholeWeight = 1.0 / 32;
constexpr double kLocalWeight = 1.0 / 64;
constexpr double kRateWeight = 1.0 / 96;
// Trials that what others have seen counts for, and what was seen before a
// pause.
constexpr double kTrialsOfPrior = 12;
constexpr double kTrialsBeforePause = 6;
// Observations before the first judgement of a time of drafting.
constexpr int kObservations = 8;
// Drafts are given up when they are expected to earn less, and must show more
// to begin again: their messages are not free either.
constexpr double kLeastGain = 0.005;
constexpr double kGainToBegin = 0.012;
// In plain passes: how much a wait must gain to begin, or lose to end.
constexpr double kWaitMargin = 0.02;
// Commits between two judgements, after the first ones, and judgements between
// two choices of what the drafter is asked for.
constexpr int64_t kCommitsPerJudgement = 4;
constexpr int64_t kEarlyCommits = 16;
constexpr int kJudgementsPerChoice = 2;
// How much better another run length must be.
constexpr double kRunMargin = 0.01;
// How much worse than the best counts as the same.
constexpr double kTie = 0.002;
// How far off a cut must be to be moved.
constexpr float kCutMargin = 0.3f;
constexpr float kMostCut = 0.9f;
// A local draft is not cheaper than this many rows of a pass, and how far off
// what is to be expected of it must be to be moved.
constexpr double kLocalRows = 2;
constexpr float kLocalMargin = 0.3f;
constexpr int kLeastPause = 16;
constexpr int kMostPause = 128;

constexpr int kRunLengths[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};

}  // namespace

SpeculationControl::SpeculationControl(const SpeculationStart& start,
                                       const SpeculationBounds& bounds)
    : estimates_(start.estimates),
      bounds_(bounds),
      drafting_(start.estimates.pays),
      tokens_to_attempt_(start.first_attempt) {
  estimates_.LimitTrials(kTrialsOfPrior);
  if (estimates_.MeasuredGain() < 1) {
    estimates_.pays = false;
    drafting_ = false;
  }
  settings_.run_length = std::clamp(bounds.run_length, 1, kMaxRunLength);
  settings_.window = std::max(bounds.window, settings_.run_length);
  const SpeculationModel model(estimates_);
  // What nobody has seen yet is no reason to depart from the default.
  if (estimates_.costs.plain() > 0) ChooseDrafting(model);
  const SpeculationModel::Outcome outcome =
      model.Evaluate(settings_.run_length);
  speedup_ = outcome.speedup;
  ChooseWaiting(outcome);
  UpdatePatience();
  UpdateLocalEnough(outcome);
}

double SpeculationControl::local_speedup() const {
  return std::max(
      estimates_.local_tokens.Value(1, 1) / estimates_.local_time.Value(1, 1),
      0.1);
}

void SpeculationControl::OnAnswer(int num_tokens, float confidence, int lag) {
  auto& start = estimates_.starts[static_cast<size_t>(spell_)];
  const bool proposed = num_tokens > 0;
  start.answered.Observe(proposed, kAnsweredWeight);
  const double plain = estimates_.costs.plain();
  if (plain > 0 && (overdue_ || settings_.patience == absl::ZeroDuration())) {
    // Nobody waited for it, so its time is known in passes only.
    if (lag > 0) {
      estimates_.answer_time.Observe(num_tokens, (lag + 0.5) * plain);
    } else {
      estimates_.answer_time.ObserveWithin(plain);
      estimates_.in_time.Observe(true, kInTimeWeight);
    }
  }
  overdue_ = false;
  in_streak_ = proposed;
  streak_ = 0;
  streak_spell_ = spell_;
  if (!proposed) {
    OnStart(/*failed=*/true);
  } else {
    first_run_ = num_tokens;
    confidence_ = confidence;
    if (confidence > 0) estimates_.drafter_estimates = true;
    for (int i = 0; i < settings_.run_length; ++i) {
      estimates_.longer[static_cast<size_t>(i)].Observe(num_tokens > i,
                                                        kLongerWeight);
    }
  }
  UpdatePatience();
}

void SpeculationControl::OnCompared(int matched, int compared, bool more) {
  if (!in_streak_ || compared < 1) return;
  for (int i = 0; i < std::min(matched + 1, compared); ++i) {
    const bool right = i < matched;
    if (streak_ == 0) {
      estimates_.starts[static_cast<size_t>(streak_spell_)].first.Observe(
          right,
          streak_spell_ == DraftSpell::kOutside ? kFirstWeightOutside
                                                : kFirstWeight);
      OnStart(/*failed=*/!right);
    } else {
      estimates_.grows[SpeculationEstimates::RangeOf(streak_ + 1)].Observe(
          right, kGrowsWeight);
    }
    if (right) ++streak_;
  }
  const bool wrong = matched < compared;
  if (wrong || !more) {
    // A path that ended where it was told to says nothing of the next token.
    if (!wrong && streak_ % settings_.run_length != 0) {
      estimates_.grows[SpeculationEstimates::RangeOf(streak_ + 1)].Observe(
          false, kGrowsWeight);
    }
    EndStreak();
  }
  UpdatePatience();
}

void SpeculationControl::OnStart(bool failed) {
  ++num_seen_;
  failures_ = failed ? failures_ + 1 : 0;
  spell_ = failures_ == 0                 ? DraftSpell::kInside
           : failures_ < kFailuresOutside ? DraftSpell::kLeaving
                                          : DraftSpell::kOutside;
}

void SpeculationControl::EndStreak() {
  in_streak_ = false;
  if (confidence_ <= 0) return;
  estimates_.whole.Observe(streak_ >= first_run_, kWholeWeight);
  estimates_.whole_expected.Observe(confidence_, kWholeWeight);
}

void SpeculationControl::OnPass(const Pass& pass) {
  estimates_.costs.Observe(
      pass.num_proposed, absl::ToDoubleSeconds(pass.verify), pass.alone);
  if (pass.local) {
    estimates_.local_tokens.Observe(pass.num_committed, kLocalWeight);
    estimates_.local_time.Observe(1 + estimates_.costs.Added(pass.num_proposed),
                                  kLocalWeight);
  }
  if (pass.open && pass.verify > absl::ZeroDuration()) {
    // A verifier that waits for credit, or for others, is none the slower.
    const absl::Duration wait =
        std::min(pass.wait, pass.patience + pass.verify);
    SpeculationEstimates::Rate& rate =
        pass.alone ? estimates_.alone : estimates_.asked;
    rate.tokens.Observe(pass.num_committed, kRateWeight);
    rate.seconds.Observe(absl::ToDoubleSeconds(pass.verify + wait),
                         kRateWeight);
  }
  if (pass.patience == absl::ZeroDuration()) return;
  const double wait = absl::ToDoubleSeconds(pass.wait);
  const bool in_time = (pass.num_proposed > 0 && !pass.local) ||
                       (pass.answered && pass.wait < pass.patience);
  estimates_.in_time.Observe(in_time, kInTimeWeight);
  if (in_time) {
    estimates_.answer_time.Observe(pass.local ? 0 : pass.num_proposed, wait);
  } else {
    estimates_.answer_time.ObserveLater(wait);
    overdue_ = !pass.answered;
  }
}

void SpeculationControl::OnCommitted(int num_tokens) {
  if (drafting_) {
    // What changes at once is which of the choices made before is in force.
    if (++num_commits_ <= kEarlyCommits ||
        num_commits_ % kCommitsPerJudgement == 0) {
      Judge();
    }
    UpdatePatience();
    return;
  }
  tokens_to_attempt_ -= num_tokens;
  if (tokens_to_attempt_ > 0) return;
  drafting_ = true;
  num_seen_ = 0;
  overdue_ = false;
  in_streak_ = false;
  estimates_.LimitTrials(kTrialsBeforePause);
  UpdatePatience();
}

void SpeculationControl::Judge() {
  const SpeculationModel model(estimates_);
  if (--judgements_to_choice_ <= 0) {
    judgements_to_choice_ = kJudgementsPerChoice;
    ChooseDrafting(model);
  }
  const SpeculationModel::Outcome outcome =
      model.Evaluate(settings_.run_length);
  speedup_ = outcome.speedup;
  ChooseWaiting(outcome);
  UpdateLocalEnough(outcome);
  if (num_seen_ >= kObservations) {
    const double needed = estimates_.pays ? kLeastGain : kGainToBegin;
    // What was measured has the last word where it is worse.
    const double measured = estimates_.MeasuredGain();
    if (speedup_ < 1 + needed || measured < 1) {
      estimates_.pause_tokens =
          estimates_.pays ? kLeastPause
                          : std::min(2 * estimates_.pause_tokens, kMostPause);
      estimates_.pays = false;
      drafting_ = false;
      tokens_to_attempt_ = estimates_.pause_tokens;
    } else {
      estimates_.pays = true;
    }
  }
}

void SpeculationControl::ChooseDrafting(const SpeculationModel& model) {
  if (!bounds_.fixed_run_length) {
    ChooseRunLength(model);
    if (estimates_.drafter_estimates) ChooseCut(model);
  }
  if (bounds_.fixed_window) return;
  const int window = model.Window(settings_.run_length);
  // More than is needed does little harm, so it is moved seldom.
  if (settings_.window < window || settings_.window > 2 * window) {
    settings_.window = window;
  }
}

void SpeculationControl::ChooseRunLength(const SpeculationModel& model) {
  const int most =
      std::min(bounds_.fixed_window ? bounds_.window : kMaxRunLength,
               model.LongestRun());
  // The shortest that is about as good as any: the verifier takes no more
  // tokens than pay, and the rest would be drafted in vain. A drafter that
  // knows better where a run should end still ends it there.
  double best = 0;
  for (const int candidate : kRunLengths) {
    if (candidate <= most) {
      best = std::max(best, model.Evaluate(candidate).speedup);
    }
  }
  const auto shortest =
      std::find_if(std::begin(kRunLengths), std::end(kRunLengths), [&](int k) {
        return k >= most || model.Evaluate(k).speedup > best * (1 - kTie);
      });
  const int before = settings_.run_length;
  if (before > 2 * *shortest ||
      model.Evaluate(before).speedup * (1 + kRunMargin) < best) {
    settings_.run_length = std::min(*shortest, most);
  }
}

void SpeculationControl::ChooseCut(const SpeculationModel& model) {
  // What the drafter takes for likely may be less so.
  const double calibration =
      std::clamp(estimates_.whole.Value(0.5, 4) /
                     std::max(estimates_.whole_expected.Value(0.5, 4), 0.01),
                 0.25,
                 4.0);
  const double worthwhile =
      model.WorthwhileSurvival(std::max(speedup_, 1.0), waits_);
  const auto cut =
      static_cast<float>(std::min<double>(worthwhile / calibration, kMostCut));
  if (std::abs(cut - settings_.min_survival) >
      kCutMargin * settings_.min_survival) {
    settings_.min_survival = cut;
  }
}

void SpeculationControl::ChooseWaiting(
    const SpeculationModel::Outcome& outcome) {
  const double plain = estimates_.costs.plain();
  for (size_t i = 0; i < kNumSpells; ++i) {
    const SpeculationModel::Round& round = outcome.rounds[i];
    waits_[i] =
        plain > 0 && round.wait_gain > (waits_[i] ? -kWaitMargin : kWaitMargin);
    if (!waits_[i]) continue;
    const absl::Duration wanted =
        std::min(absl::Seconds(round.patience * plain), bounds_.patience);
    // Moved seldom, and only to something rough: each move is a message.
    if (patience_[i] < wanted || patience_[i] > 3 * wanted) {
      // It travels in whole microseconds.
      patience_[i] = absl::Ceil(std::min(1.5 * wanted, bounds_.patience),
                                absl::Microseconds(1));
    }
  }
}

void SpeculationControl::UpdateLocalEnough(
    const SpeculationModel::Outcome& outcome) {
  // As much as is saved by asking the drafter.
  const SpeculationModel::Round& round =
      outcome.rounds[static_cast<size_t>(spell_)];
  const auto wanted = static_cast<float>(std::max(round.saved, 0.0) +
                                         estimates_.costs.Added(kLocalRows));
  if (std::abs(wanted - settings_.local_enough) >
      kLocalMargin * settings_.local_enough) {
    settings_.local_enough = wanted;
  }
}

void SpeculationControl::UpdatePatience() {
  const size_t spell = static_cast<size_t>(spell_);
  settings_.patience = drafting_ && !overdue_ && waits_[spell]
                           ? patience_[spell]
                           : absl::ZeroDuration();
}

}  // namespace specwire::coordinator
