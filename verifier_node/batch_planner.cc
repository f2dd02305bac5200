// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/batch_planner.h"

#include <algorithm>
#include <queue>

#include "common/base/round_up.h"

namespace specwire::verifier {
namespace {

// Rows of prompts that a pass has whatever they cost, so that prompts advance.
constexpr int kLeastPrefillRows = 2;
// One part in so many of a pass's greatest number of rows is kept for prompts
// if any wait.
constexpr int kPartForPrompts = 8;

// Whether a pass of `now` seconds and so many expected tokens yields more of
// them a second if it takes `more` seconds for another that survives with that
// chance.
bool Pays(double now, double more, double expected_tokens, double survival) {
  return survival * now > (more - now) * expected_tokens;
}

// The chance that the candidate's draft token at `place` and all before it are
// accepted, `before` being that of those before it.
double SurvivalAt(const PassCandidate& candidate, int place, double before) {
  const auto index = static_cast<size_t>(place);
  return index < candidate.draft_survival.size()
             ? static_cast<double>(candidate.draft_survival[index])
             : before * candidate.survival->Acceptance(place);
}

class Planner {
 public:
  Planner(absl::Span<const PassCandidate> candidates,
          const PassCost& cost,
          const PassLimits& limits)
      : candidates_(candidates),
        cost_(cost),
        limits_(limits),
        free_blocks_(limits.free_blocks) {}

  PassPlan Plan() {
    AddSteps();
    if (NumPrompts() == 0) {
      AddDrafts();
    } else {
      AddChunks();
    }
    if (must_lacks_ || (lacks_ && plan_.runs.empty())) plan_.starved = true;
    return std::move(plan_);
  }

 private:
  int64_t BlocksFor(int64_t num_tokens) const {
    return DivideUp(num_tokens, limits_.block_size);
  }
  // Blocks that `rows` more need behind `length` positions.
  int64_t NewBlocks(int length, int rows) const {
    return BlocksFor(int64_t{length} + rows) - BlocksFor(length);
  }
  // Rows for which there are blocks behind `length` positions.
  int Room(int length) const {
    const int64_t room =
        (BlocksFor(length) + free_blocks_) * limits_.block_size - length;
    return static_cast<int>(std::min<int64_t>(room, limits_.max_rows));
  }
  int rows_left() const {
    return limits_.max_rows - static_cast<int>(shape_.rows);
  }

  void Lack(const PassCandidate& candidate) {
    lacks_ = true;
    if (candidate.must_advance) must_lacks_ = true;
  }

  void Add(PlannedRun run) {
    const PassCandidate& candidate = candidates_[run.candidate];
    const int rows = run.rows + run.draft_rows;
    free_blocks_ -= NewBlocks(candidate.length, rows);
    shape_.AddRun(rows, candidate.length);
    shape_.logit_rows += LogitRows(run);
    if (run.steps) expected_tokens_ += 1;
    plan_.runs.push_back(run);
  }
  int LogitRows(const PlannedRun& run) const {
    if (candidates_[run.candidate].all_logits) return run.rows + run.draft_rows;
    return run.steps ? 1 + run.draft_rows : 0;
  }

  void AddSteps() {
    // However many decode, prompts advance.
    const int reserved =
        NumPrompts() > 0 ? limits_.max_rows / kPartForPrompts : 0;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const PassCandidate& candidate = candidates_[i];
      if (!candidate.steps || candidate.uncomputed > 1) continue;
      int drafts = candidate.lock_step ? candidate.draft_rows : 0;
      if (1 + drafts > rows_left() - reserved) continue;
      const int room = Room(candidate.length);
      if (limits_.last_resort) drafts = std::clamp(room - 1, 0, drafts);
      if (1 + drafts > room) {
        plan_.starved = true;
        continue;
      }
      Add({.candidate = i, .rows = 1, .draft_rows = drafts, .steps = true});
    }
  }

  // Adds draft tokens to the runs that step.
  void AddDrafts() {
    struct Draft {
      double survival = 0;
      size_t run = 0;
      bool operator<(const Draft& other) const {
        if (survival != other.survival) return survival < other.survival;
        return run > other.run;
      }
    };
    std::priority_queue<Draft> drafts;
    const auto push = [&](double survival, size_t index) {
      const PlannedRun& run = plan_.runs[index];
      const PassCandidate& candidate = candidates_[run.candidate];
      if (run.draft_rows >= candidate.draft_rows) return;
      drafts.push({SurvivalAt(candidate, run.draft_rows, survival), index});
    };
    for (size_t i = 0; i < plan_.runs.size(); ++i) {
      const PassCandidate& candidate = candidates_[plan_.runs[i].candidate];
      if (plan_.runs[i].steps && !candidate.lock_step) push(1, i);
    }
    while (!drafts.empty() && rows_left() > 0) {
      const Draft next = drafts.top();
      drafts.pop();
      PlannedRun& run = plan_.runs[next.run];
      const int length = candidates_[run.candidate].length;
      const int rows = run.rows + run.draft_rows;
      const int64_t blocks =
          NewBlocks(length, rows + 1) - NewBlocks(length, rows);
      if (blocks > free_blocks_) continue;
      PassShape more = shape_;
      more.AddRows(1, length + rows);
      ++more.logit_rows;
      if (!Pays(cost_.Predict(shape_),
                cost_.Predict(more),
                expected_tokens_,
                next.survival)) {
        return;
      }
      shape_ = more;
      free_blocks_ -= blocks;
      expected_tokens_ += next.survival;
      ++run.draft_rows;
      push(next.survival, next.run);
    }
  }

  void AddChunks() {
    const bool timed = !plan_.runs.empty();
    const double limit = Slowdown() * cost_.Predict(shape_);
    int left = std::min(limits_.prefill_rows, rows_left());
    int least = kLeastPrefillRows;
    for (size_t i = 0; i < candidates_.size() && left > 0; ++i) {
      const PassCandidate& candidate = candidates_[i];
      if (candidate.uncomputed <= 1) continue;
      PlannedRun run = Chunk(i, left);
      if (run.rows < 1) {
        if (rows_left() > 0) Lack(candidate);
        continue;
      }
      if (timed) Shorten(limit, least, &run);
      if (run.rows < 1) break;
      left -= run.rows;
      least -= run.rows;
      Add(run);
    }
  }

  int64_t NumPrompts() const {
    return std::count_if(
        candidates_.begin(), candidates_.end(), [](const auto& candidate) {
          return candidate.uncomputed > 1;
        });
  }
  double Slowdown() const {
    const double more =
        limits_.slowdown_per_prompt * static_cast<double>(NumPrompts() - 1);
    return std::min(limits_.prefill_slowdown + std::max(more, 0.0),
                    limits_.most_slowdown);
  }

  // As much of a prompt as rows and blocks allow.
  PlannedRun Chunk(size_t index, int left) const {
    const PassCandidate& candidate = candidates_[index];
    const int room = Room(candidate.length);
    PlannedRun run = {.candidate = index};
    run.rows = std::min({candidate.uncomputed, left, rows_left(), room});
    if (run.rows < candidate.uncomputed) return run;
    // The end of its tokens.
    run.steps = candidate.steps;
    if (candidate.steps && candidate.lock_step) {
      run.draft_rows = candidate.draft_rows;
      const int rows = run.rows + run.draft_rows;
      run.steps = rows <= room && rows <= rows_left();
    }
    if (!run.steps) {
      --run.rows;
      run.draft_rows = 0;
    }
    return run;
  }

  // Takes rows off until the pass is predicted to end in time, but keeps
  // `least` of them.
  void Shorten(double limit, int least, PlannedRun* run) const {
    const auto fits = [&](int rows) {
      PassShape shape = shape_;
      shape.AddRun(rows, candidates_[run->candidate].length);
      if (candidates_[run->candidate].all_logits) shape.logit_rows += rows;
      return cost_.Predict(shape) <= limit;
    };
    int low = std::clamp(least, 0, run->rows);
    int high = run->rows;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (fits(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    if (low == run->rows) return;
    run->rows = low;
    run->steps = false;
    run->draft_rows = 0;
  }

  const absl::Span<const PassCandidate> candidates_;
  const PassCost& cost_;
  const PassLimits limits_;
  int64_t free_blocks_;
  PassShape shape_;
  // Of all runs that step.
  double expected_tokens_ = 0;
  // A prompt, or one that must advance, got no row for lack of blocks.
  bool lacks_ = false;
  bool must_lacks_ = false;
  PassPlan plan_;
};

}  // namespace

PassPlan PlanPass(absl::Span<const PassCandidate> candidates,
                  const PassCost& cost,
                  const PassLimits& limits) {
  return Planner(candidates, cost, limits).Plan();
}

bool IsWorthARow(const PassCandidate& candidate,
                 int num_steps,
                 const PassCost& cost) {
  PassShape plain;
  for (int i = 0; i < num_steps; ++i) plain.AddRun(1, candidate.length);
  plain.logit_rows = num_steps;
  PassShape more = plain;
  more.AddRows(1, candidate.length + 1);
  ++more.logit_rows;
  return Pays(cost.Predict(plain),
              cost.Predict(more),
              num_steps,
              candidate.survival->Acceptance(0));
}

}  // namespace specwire::verifier
