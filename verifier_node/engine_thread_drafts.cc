// SPDX-License-Identifier: Apache-2.0

// The engine thread's local drafts, as far as a model makes them.

#include <algorithm>
#include <vector>

#include "verifier_node/engine_thread.h"

namespace specwire::verifier {
namespace {

// Each pass makes those before it count so much less.
constexpr double kFade = 0.95;
// How much a pass counts in the estimates of what they take beyond what is
// predicted.
constexpr double kExcessRate = 0.02;

}  // namespace

bool EngineThread::DraftLocally(absl::Span<EngineSequence* const> ready,
                                absl::Span<const PassCandidate> candidates) {
  std::vector<EngineSequence*> drafting;
  std::vector<LocalTask> tasks;
  for (size_t i = 0; i < ready.size(); ++i) {
    // No draft is verified while a prompt waits.
    if (candidates[i].uncomputed > 1) return false;
    Decoding* const decoding = ready[i]->decoding.get();
    if (decoding == nullptr || decoding->local == nullptr ||
        !decoding->local->has_work() || !candidates[i].steps) {
      continue;
    }
    const int most = decoding->verify.num_local_tokens_wanted();
    if (most < 1) continue;
    drafting.push_back(ready[i]);
    tasks.push_back({.sequence = decoding->local.get(),
                     .log = decoding->verify.log(),
                     .max_tokens = most});
  }
  if (tasks.empty()) return false;
  const absl::Time start = clock_->Now();
  local_drafter_->Draft(absl::MakeSpan(tasks), PricesNow());
  for (size_t i = 0; i < tasks.size(); ++i) {
    // Else what was looked up stays.
    if (tasks[i].run.tokens.empty()) continue;
    drafting[i]->decoding->verify.SetLocalDraft(std::move(tasks[i].run));
  }
  const absl::Duration duration = clock_->Now() - start;
  lately_.seconds += absl::ToDoubleSeconds(duration);
  metrics_->OnLocalDraft(duration);
  return true;
}

LocalPrices EngineThread::PricesNow() const {
  LocalPrices prices;
  if (lately_.passes == 0) return prices;
  prices.num_sequences =
      std::max(static_cast<int>(lately_.sequences / lately_.passes + 0.5), 1);
  PassShape plain;
  for (int i = 0; i < prices.num_sequences; ++i) plain.AddRun(1, context_);
  plain.logit_rows = prices.num_sequences;
  PassShape more = plain;
  more.AddRows(1, context_ + 1);
  ++more.logit_rows;
  prices.row_seconds = pass_cost_.Predict(more) - pass_cost_.Predict(plain);
  prices.first_row_seconds =
      std::max(excess_seconds_.drafts - excess_seconds_.plain, 0.0);
  prices.tokens_per_second = lately_.tokens / std::max(lately_.seconds, 1e-9);
  return prices;
}

void EngineThread::ObserveRate(absl::Span<const PassRun> runs,
                               absl::Duration duration,
                               double excess_seconds) {
  double tokens = 0;
  double sequences = 0;
  bool drafts = false;
  for (const PassRun& run : runs) {
    if (!run.status.ok() || !run.plan.steps || run.plan.rows > 1) return;
    tokens += static_cast<double>(run.commit.tokens.size());
    sequences += 1;
    drafts = drafts || run.plan.draft_rows > 0;
    context_ = run.commit.position;
  }
  // A single odd one says little.
  const double most = absl::ToDoubleSeconds(duration) / 2;
  double& excess = drafts ? excess_seconds_.drafts : excess_seconds_.plain;
  excess += kExcessRate * (std::clamp(excess_seconds, -most, most) - excess);
  lately_.tokens = kFade * lately_.tokens + tokens;
  lately_.sequences = kFade * lately_.sequences + sequences;
  lately_.passes = kFade * lately_.passes + 1;
  lately_.seconds = kFade * lately_.seconds + absl::ToDoubleSeconds(duration);
}

}  // namespace specwire::verifier
