// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace specwire::coordinator {

// What is known of how well drafts fare, as averages that forget.
struct SpeculationEstimates {
  // Chance that a draft token is right: the first behind a commit, and a
  // further one, given that those before it in its run were.
  double first = 0.6;
  double next = 0.7;
  // Share of answers that propose something.
  double answered = 0.8;
  // Seconds; 0: not seen yet. From the end of a step until its proposal is
  // there; a pass without draft tokens; what each draft token adds to one.
  double wait = 0;
  double plain = 0;
  double row = 0;
  // Whether drafts paid when they were last judged.
  bool pays = true;
  // Tokens from a judgement that drafts do not pay to the next attempt; it
  // grows with each attempt that fails.
  int pause_tokens = 32;
};

// How a sequence begins.
struct SpeculationStart {
  SpeculationEstimates estimates;
  // If drafts do not pay: committed tokens until the first attempt.
  int first_attempt = 32;
};

// Decides for one sequence whether drafts are worth having and worth waiting
// for, from what became of those so far. Where they are not, the drafter is
// left alone and the verifier decodes plainly, which costs nothing; after a
// while a few passes try again, without waiting.
//
// The yardstick is the expected rate of tokens against plain decoding. With P =
// answered, S_i = first next^(i-1), times in units of a plain pass, run length
// k and the wait w, a step that waits gives
//   (1 + P (S_1 + ... + S_k)) / (1 + w + P k row),
// one that takes what is there has its draft, without the token that the plain
// pass found meanwhile, one pass later:
//   (1 + P S_1 (1 + next + ... + next^(k-1))) / (1 + P S_1 (1 + (k-1) row)).
// See the cycle of guides/performance.md 2.3, of which these are the two
// extremes of patience.
//
// Judgements have a margin to either side, so that noise does not flip them.
// Pure code: no clock. Only timing and luck are judged, never text: under the
// coupled rule no decision changes a token. Not for the ratio rule, where
// whether a position has a draft may not depend on how fast it came.
//
// Thread safety: one thread at a time.
class SpeculationControl {
 public:
  // `start` is what other sequences have seen. `run_length` >= 1.
  SpeculationControl(const SpeculationStart& start, int run_length);

  // Draft tokens could be compared with committed ones: the first `matched` of
  // `compared` were right. REQUIRES: 0 <= matched <= compared.
  void OnCompared(int matched, int compared);
  // The drafter answered, with draft tokens or with none.
  void OnAnswer(bool proposed);
  // A pass that verified `num_proposed` tokens took `verify`. `wait` before it;
  // `was_due`: nothing was there to verify when the step before it ended.
  void OnPass(int num_proposed,
              absl::Duration verify,
              absl::Duration wait,
              bool was_due);
  // `num_tokens` more were committed: judges anew.
  void OnCommitted(int num_tokens);

  // The drafter is told of commits and its drafts are used.
  bool drafting() const { return drafting_; }
  // A step waits for its draft.
  bool waiting() const { return drafting_ && waiting_; }

  const SpeculationEstimates& estimates() const { return estimates_; }
  // Expected rate of tokens against plain decoding, with the better patience.
  double predicted_speedup() const;

 private:
  double Weight() const;
  double RateWaiting() const;
  double RateTaking() const;
  void Judge();

  SpeculationEstimates estimates_;
  const int run_length_;
  bool drafting_;
  bool waiting_ = false;
  // Observations since drafting began.
  int num_seen_ = 0;
  // Tokens to commit until the next attempt; counts while it pauses.
  int tokens_to_attempt_ = 0;
};

}  // namespace specwire::coordinator
