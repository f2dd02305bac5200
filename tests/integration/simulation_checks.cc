// SPDX-License-Identifier: Apache-2.0
// What must hold when a simulated request has ended.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/simulation.h"

namespace specwire::simulation {

void Simulation::CheckEnd() {
  if (!machine_.finished() || verifier_open_ || drafter_open_) {
    Fail("a stream outlived the request");
  }
  const std::vector<int32_t> prompt = {0, 1, 2};
  ToyText truth = ToyDecode(settings_.toy_seed,
                            prompt,
                            settings_.max_tokens,
                            settings_.stops,
                            settings_.stop_text);
  if (!finish_->status.ok()) {
    const bool given_up =
        no_verifier_ || outcome_.verifiers_lost > settings_.max_moves;
    if (!given_up || finish_->status.code() != absl::StatusCode::kUnavailable) {
      Fail(absl::StrCat("the request failed: ", finish_->status.ToString()));
    }
    truth.tokens.resize(std::min(truth.tokens.size(), client_.size()));
  } else if (finish_->reason != truth.finish ||
             truth.stop_text != finish_->stop_text ||
             (truth.finish == FinishReason::kStop && !truth.stop_text) !=
                 (finish_->stop_token_id == kToyStop)) {
    Fail("wrong finish");
  }
  if (client_ != truth.tokens) {
    Fail("wrong text");
  }
  const absl::Span<const int32_t> log = machine_.log();
  if (!std::equal(client_.begin(), client_.end(), log.begin() + 3, log.end())) {
    Fail("the log is not what was emitted");
  }
  // Asked once about each token, in order, save one that ends by itself.
  std::vector<int32_t> judged = client_;
  if (finish_->stop_token_id.has_value()) judged.pop_back();
  if (settings_.stop_text && judged_ != judged) {
    Fail("the judge was not asked once about each token");
  }
  CheckFigures();
  CheckTrace();
}

void Simulation::CountTraced(const coordinator::TracedPass& pass) {
  left_out_ += pass.num_left_out;
  for (const coordinator::TracedRun& run : pass.drafts) {
    for (const coordinator::TracedDraft& draft : run.tokens) {
      ++traced_[draft.outcome];
      const auto at = static_cast<size_t>(draft.position);
      // Of what is emitted, at its place.
      if (draft.outcome == DraftOutcome::kAccepted &&
          broken_ == Broken::kNone &&
          (at >= machine_.log().size() ||
           machine_.log()[at] != draft.token_id)) {
        Fail("a token is told as accepted that was not emitted");
      }
    }
  }
}

void Simulation::CheckTrace() {
  const coordinator::SpeculationFigures& f = machine_.figures();
  // A broken verifier forgets tokens that it was sent.
  if (broken_ != Broken::kNone) return;
  const int64_t verified = traced_[DraftOutcome::kAccepted] +
                           traced_[DraftOutcome::kRejected] +
                           traced_[DraftOutcome::kDiscarded];
  int64_t all = left_out_;
  for (const auto& [outcome, count] : traced_) all += count;
  // Verified ones are always told.
  const bool right =
      traced_[DraftOutcome::kAccepted] == f.num_accepted_draft_tokens &&
      verified == f.num_draft_tokens && all == f.num_drafted_tokens &&
      traced_[DraftOutcome::kOverlapped] <= f.num_overlapped_tokens &&
      traced_[DraftOutcome::kStale] <= f.num_stale_tokens &&
      traced_[DraftOutcome::kTrimmed] <= f.num_trimmed_tokens &&
      traced_[DraftOutcome::kUnused] <= f.num_unused_tokens;
  if (!right) {
    Fail(absl::StrCat("the trace does not add up: accepted ",
                      traced_[DraftOutcome::kAccepted],
                      " (",
                      f.num_accepted_draft_tokens,
                      "), verified ",
                      verified,
                      " (",
                      f.num_draft_tokens,
                      "), overlapped ",
                      traced_[DraftOutcome::kOverlapped],
                      " (",
                      f.num_overlapped_tokens,
                      "), stale ",
                      traced_[DraftOutcome::kStale],
                      " (",
                      f.num_stale_tokens,
                      "), trimmed ",
                      traced_[DraftOutcome::kTrimmed],
                      " (",
                      f.num_trimmed_tokens,
                      "), unused ",
                      traced_[DraftOutcome::kUnused],
                      " (",
                      f.num_unused_tokens,
                      "), left out ",
                      left_out_));
  }
}

void Simulation::CheckFigures() {
  const coordinator::SpeculationFigures& f = machine_.figures();
  int64_t verified = 0;
  int64_t unused = 0;
  int64_t dropped = dropped_;
  int64_t trimmed = 0;
  for (const auto& [stream, b] : books_) {
    const int64_t said =
        b.counters.overlapped + b.counters.stale + b.counters.trimmed;
    verified += b.verified;
    trimmed += b.counters.trimmed;
    dropped += b.counters.overlapped + b.counters.stale;
    unused += b.forwarded - b.verified - said;
  }
  int64_t steps = 0;
  int64_t in_histogram = 0;
  for (size_t j = 0; j < f.acceptance_histogram.size(); ++j) {
    steps += f.acceptance_histogram[j];
    in_histogram += f.acceptance_histogram[j] * static_cast<int64_t>(j);
  }
  int64_t rows = 0;
  int64_t accepted_rows = 0;
  for (size_t i = 0; i < f.draft_tokens_per_position.size(); ++i) {
    rows += f.draft_tokens_per_position[i];
    accepted_rows += f.accepted_tokens_per_position[i];
  }
  const int64_t emitted = static_cast<int64_t>(client_.size()) - num_resumed_;
  const bool right =
      f.num_drafted_tokens == drafted_ + local_ &&
      f.num_draft_tokens == verified + local_ &&
      f.num_local_draft_tokens == local_ && f.num_trimmed_tokens == trimmed &&
      f.num_overlapped_tokens + f.num_stale_tokens == dropped &&
      f.num_unused_tokens == unused && unused >= 0 &&
      f.num_drafted_tokens == f.num_draft_tokens + f.num_overlapped_tokens +
                                  f.num_stale_tokens + f.num_trimmed_tokens +
                                  f.num_unused_tokens &&
      f.num_passes == passes_ && f.num_accepted_draft_tokens == accepted_ &&
      f.num_accepted_draft_tokens <= f.num_draft_tokens &&
      f.num_spec_steps == steps && in_histogram == accepted_ &&
      rows == verified + local_ && accepted_rows == accepted_ &&
      // A pass emits its accepted tokens and one of its own, save where a stop
      // falls on an accepted one.
      emitted <= passes_ + accepted_ && emitted >= passes_ + accepted_ - 1;
  if (!right) {
    Fail(absl::StrCat("figures do not add up: drafted ",
                      f.num_drafted_tokens,
                      " (",
                      drafted_,
                      "), verified ",
                      f.num_draft_tokens,
                      " (",
                      verified,
                      "), overlapped + stale ",
                      f.num_overlapped_tokens,
                      " + ",
                      f.num_stale_tokens,
                      " (",
                      dropped,
                      "), trimmed ",
                      f.num_trimmed_tokens,
                      " (",
                      trimmed,
                      "), unused ",
                      f.num_unused_tokens,
                      " (",
                      unused,
                      "), passes ",
                      f.num_passes,
                      " (",
                      passes_,
                      "), accepted ",
                      f.num_accepted_draft_tokens,
                      " (",
                      accepted_,
                      ")"));
  }
}

}  // namespace specwire::simulation
