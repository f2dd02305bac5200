// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "absl/time/time.h"
#include "coordinator/speculation_estimates.h"
#include "coordinator/speculation_model.h"

namespace specwire::coordinator {

// How a sequence begins.
struct SpeculationStart {
  SpeculationEstimates estimates;
  // If drafts do not pay: committed tokens until the first attempt.
  int first_attempt = 32;
};

// What control may choose from.
struct SpeculationBounds {
  // To begin with; for good if fixed, and runs are then not cut.
  int run_length = 4;
  bool fixed_run_length = false;
  // The same.
  int window = 8;
  bool fixed_window = false;
  // No step waits for longer.
  absl::Duration patience = absl::Milliseconds(10);
};

// What control has chosen.
struct ChosenSettings {
  int run_length = 4;
  int window = 8;
  // See DraftLimits.
  float min_survival = 0;
  absl::Duration patience = absl::ZeroDuration();
  // See DecodeTune.local_enough of proto/specwire/v1/verifier.proto.
  float local_enough = 0.5f;
};

// Decides for one sequence how it speculates, from what became of its drafts so
// far: whether drafts are worth having, how long runs are and where they are
// cut, and whether and how long a step waits for its draft, which is decided
// apart inside and outside spells of good drafts. What is chosen maximises the
// expected rate of tokens by SpeculationModel.
//
// Where drafts do not pay, the drafter is left alone and the verifier decodes
// plainly, which costs nothing; after a while, longer each time, a few passes
// try again, without waiting unless that is worth it by what they show.
//
// Choices have a margin to either side, so that noise does not flip them. A
// wait that is missed is the last until the drafter has answered.
//
// Pure code: no clock. Only timing and luck are judged, never text: under the
// coupled rule no decision changes a token. Not for the ratio rule, where
// whether a position has a draft may not depend on how fast it came.
//
// Thread safety: one thread at a time.
class SpeculationControl {
 public:
  // `start` is what other sequences have seen. 1 <= bounds.run_length <=
  // bounds.window.
  SpeculationControl(const SpeculationStart& start,
                     const SpeculationBounds& bounds);

  // With nothing of it outstanding, the drafter has proposed `num_tokens`, or
  // said that it has nothing (0). `confidence` is its estimate that all are
  // accepted, 0 without; `lag` the passes that were committed since it was
  // asked.
  void OnAnswer(int num_tokens, float confidence, int lag);
  // Of the path that it has taken since, further tokens could be compared with
  // committed ones: the first `matched` of `compared` were right. `more`: the
  // path goes on behind them. REQUIRES: 0 <= matched <= compared.
  void OnCompared(int matched, int compared, bool more);
  struct Pass {
    // Draft tokens that it verified, and tokens that it committed.
    int num_proposed = 0;
    int num_committed = 1;
    // Its draft tokens were the verifier's own.
    bool local = false;
    // The drafter had nothing to do meanwhile, so what it takes is not the
    // slower for a machine that both share.
    bool alone = true;
    // A proposal could have been of use: no local draft was enough.
    bool open = true;
    absl::Duration verify = absl::ZeroDuration();
    // From the end of the pass before.
    absl::Duration wait = absl::ZeroDuration();
    // Nothing was there to verify when the pass before ended, so that it waited
    // for a draft, up to this patience; 0: there was something, or it did not.
    absl::Duration patience = absl::ZeroDuration();
    // The drafter has spoken since.
    bool answered = false;
  };
  void OnPass(const Pass& pass);
  // `num_tokens` more were committed: chooses anew.
  void OnCommitted(int num_tokens);

  // The drafter is told of commits and its drafts are used.
  bool drafting() const { return drafting_; }
  // How, while drafting; the drafter's part stays as it was else.
  const ChosenSettings& settings() const { return settings_; }

  const SpeculationEstimates& estimates() const { return estimates_; }
  // Expected rate of tokens against plain decoding.
  double predicted_speedup() const { return drafting_ ? speedup_ : 1; }
  // The same of passes with drafts of the verifier's own.
  double local_speedup() const;
  DraftSpell spell() const { return spell_; }

 private:
  void Judge();
  // Chooses run length, window and cut.
  void ChooseDrafting(const SpeculationModel& model);
  void ChooseRunLength(const SpeculationModel& model);
  void ChooseCut(const SpeculationModel& model);
  void ChooseWaiting(const SpeculationModel::Outcome& outcome);
  void UpdatePatience();
  void UpdateLocalEnough(const SpeculationModel::Outcome& outcome);
  // The streak that was compared ends.
  void EndStreak();
  // What a draft has shown of the spell.
  void OnStart(bool failed);

  SpeculationEstimates estimates_;
  const SpeculationBounds bounds_;
  bool drafting_;
  ChosenSettings settings_;
  double speedup_ = 1;
  DraftSpell spell_ = DraftSpell::kLeaving;
  // Drafts that have failed one after the other.
  int failures_ = 1;
  // By spell: a step waits, and for how long at most.
  std::array<bool, kNumSpells> waits_ = {};
  std::array<absl::Duration, kNumSpells> patience_ = {};
  // A wait was missed, and the drafter has not answered since.
  bool overdue_ = false;
  // The present streak: the spell it began in, its length, and of the run that
  // it began with the length and the drafter's estimate.
  bool in_streak_ = false;
  DraftSpell streak_spell_ = DraftSpell::kLeaving;
  int streak_ = 0;
  int first_run_ = 0;
  float confidence_ = 0;
  // Answers and first comparisons since drafting began.
  int num_seen_ = 0;
  int64_t num_commits_ = 0;
  int judgements_to_choice_ = 0;
  // Tokens to commit until the next attempt; counts while it pauses.
  int tokens_to_attempt_ = 0;
};

}  // namespace specwire::coordinator
