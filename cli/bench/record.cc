// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/record.h"

namespace specwire::cli::bench {

void Record::Add(const v1::GenerateResponse& response, absl::Duration now) {
  switch (response.event_case()) {
    case v1::GenerateResponse::kStarted:
      model = response.started().model();
      model_digest = response.started().model_digest();
      synthetic = response.started().synthetic();
      prompt_token_ids.assign(response.started().prompt_token_ids().begin(),
                              response.started().prompt_token_ids().end());
      temperature = response.started().sampling().temperature();
      seed = response.started().sampling().seed();
      break;
    case v1::GenerateResponse::kDelta: {
      const auto& ids = response.delta().token_ids();
      if (ids.empty()) break;
      chunks.push_back(Chunk{now, ids.size()});
      token_ids.insert(token_ids.end(), ids.begin(), ids.end());
      break;
    }
    case v1::GenerateResponse::kFinished:
      finished = response.finished();
      done = now;
      break;
    default:
      break;
  }
}

std::optional<double> Record::TtftMs() const {
  if (chunks.empty()) return std::nullopt;
  return absl::ToDoubleMilliseconds(chunks.front().time - scheduled);
}

std::optional<double> Record::ItlMs() const {
  if (token_ids.size() < 2) return std::nullopt;
  const absl::Duration time = chunks.back().time - chunks.front().time;
  return absl::ToDoubleMilliseconds(time) /
         static_cast<double>(token_ids.size() - 1);
}

double Record::LatencyMs() const {
  return absl::ToDoubleMilliseconds(done - scheduled);
}

int64_t Record::num_decoded() const {
  if (chunks.empty()) return 0;
  return static_cast<int64_t>(token_ids.size()) - chunks.front().num_tokens;
}

absl::Duration Record::decode_time() const {
  if (chunks.empty()) return absl::ZeroDuration();
  return chunks.back().time - chunks.front().time;
}

bool IsOverload(const absl::Status& status, bool has_deadline) {
  return absl::IsResourceExhausted(status) ||
         (has_deadline && absl::IsDeadlineExceeded(status));
}

void AddStats(const v1::SpeculationStats& stats, v1::SpeculationStats* sum) {
  sum->set_num_spec_steps(sum->num_spec_steps() + stats.num_spec_steps());
  sum->set_num_draft_tokens(sum->num_draft_tokens() + stats.num_draft_tokens());
  sum->set_num_accepted_draft_tokens(sum->num_accepted_draft_tokens() +
                                     stats.num_accepted_draft_tokens());
  sum->set_num_local_draft_tokens(sum->num_local_draft_tokens() +
                                  stats.num_local_draft_tokens());
  sum->set_num_accepted_local_draft_tokens(
      sum->num_accepted_local_draft_tokens() +
      stats.num_accepted_local_draft_tokens());
  sum->set_num_passes(sum->num_passes() + stats.num_passes());
  sum->set_num_drafted_tokens(sum->num_drafted_tokens() +
                              stats.num_drafted_tokens());
  sum->set_num_overlapped_tokens(sum->num_overlapped_tokens() +
                                 stats.num_overlapped_tokens());
  sum->set_num_stale_tokens(sum->num_stale_tokens() + stats.num_stale_tokens());
  sum->set_num_trimmed_tokens(sum->num_trimmed_tokens() +
                              stats.num_trimmed_tokens());
  sum->set_num_unused_tokens(sum->num_unused_tokens() +
                             stats.num_unused_tokens());
  sum->set_num_ahead_hits(sum->num_ahead_hits() + stats.num_ahead_hits());
  sum->set_num_ahead_misses(sum->num_ahead_misses() + stats.num_ahead_misses());
  while (sum->acceptance_histogram_size() < stats.acceptance_histogram_size()) {
    sum->add_acceptance_histogram(0);
  }
  for (int i = 0; i < stats.acceptance_histogram_size(); ++i) {
    sum->set_acceptance_histogram(
        i, sum->acceptance_histogram(i) + stats.acceptance_histogram(i));
  }
  if (!stats.drafter().empty()) sum->set_drafter(stats.drafter());
  const double accepted = static_cast<double>(sum->num_accepted_draft_tokens());
  if (sum->num_spec_steps() > 0) {
    sum->set_mean_acceptance_length(
        1 + accepted / static_cast<double>(sum->num_spec_steps()));
  }
  if (sum->num_draft_tokens() > 0) {
    sum->set_draft_acceptance_rate(
        accepted / static_cast<double>(sum->num_draft_tokens()));
  }
}

}  // namespace specwire::cli::bench
