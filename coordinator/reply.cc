// SPDX-License-Identifier: Apache-2.0
#include "coordinator/reply.h"

#include <algorithm>
#include <vector>

#include "common/rpc/convert.h"
#include "coordinator/wire.h"

namespace specwire::coordinator {
namespace {

// The time of fewer passes tells more of the machine than of drafts.
constexpr int kLeastTokensForSpeedup = 16;

// Times are read from a clock that may be set back.
absl::Duration NotNegative(absl::Duration duration) {
  return std::max(duration, absl::ZeroDuration());
}

}  // namespace

Reply::Reply(const CheckedRequest* request,
             ModelMetrics* metrics,
             absl::Time arrival,
             int choice)
    : request_(request),
      metrics_(metrics),
      arrival_(arrival),
      choice_(choice),
      text_(request->model->tokenizer.get(), request->text),
      num_resumed_(static_cast<int>(request->params.resumed.size())) {
  // What these tokens release, the client has been told by someone else; what
  // they hold back is for the next ones to release.
  const RequestParams& params = request->params;
  for (size_t i = 0; i < params.resumed.size(); ++i) {
    const bool ends =
        params.resumed_stop.has_value() && i + 1 == params.resumed.size();
    text_.Push(params.resumed[i], ends);
  }
}

bool Reply::Judge(int32_t token) {
  released_.push_back(text_.Push(token, /*ends=*/false));
  return text_.stop_text() != nullptr;
}

void Reply::OnFirstStep(absl::Time start, int32_t cached_prompt_tokens) {
  if (first_step_.has_value()) return;
  first_step_ = std::max(start, arrival_);
  cached_prompt_tokens_ = cached_prompt_tokens;
  metrics_->queue_time->Observe(absl::ToDoubleSeconds(*first_step_ - arrival_));
}

v1::GenerateResponse Reply::Delta(const EmitTokens& emit, absl::Time now) {
  v1::GenerateResponse response;
  v1::GenerateDelta* delta = response.mutable_delta();
  delta->set_choice(choice_);
  delta->set_first_index(emit.first_index);
  std::string* text = delta->mutable_text();
  for (size_t i = 0; i < emit.tokens.size(); ++i) {
    // Only tokens that end the request by themselves were not judged.
    if (released_.empty()) {
      released_.push_back(text_.Push(emit.tokens[i], /*ends=*/true));
    }
    text->append(released_.front());
    released_.pop_front();
    delta->add_token_ids(emit.tokens[i]);
    delta->add_text_ends(static_cast<int32_t>(text->size()));
    delta->add_origins(static_cast<int>(i) < emit.num_accepted
                           ? v1::TOKEN_ORIGIN_DRAFT
                           : v1::TOKEN_ORIGIN_TARGET);
  }
  for (const PositionLogprobs& entry : emit.logprobs) {
    *delta->add_logprobs() = ToProto(entry);
  }
  if (emit.trace != nullptr) {
    *delta->add_trace() =
        MakePassTrace(*emit.trace, *request_->model->tokenizer);
  }
  const int count = static_cast<int>(emit.tokens.size());
  if (num_told_ == 0) {
    first_token_ = std::max(now, arrival_);
    metrics_->time_to_first_token->Observe(
        absl::ToDoubleSeconds(first_token_ - arrival_));
    if (first_step_.has_value()) {
      metrics_->prefill_time->Observe(
          absl::ToDoubleSeconds(NotNegative(first_token_ - *first_step_)));
    }
    last_token_ = first_token_;
  } else {
    const absl::Duration step = NotNegative(now - last_token_);
    metrics_->inter_token_latency->ObserveMany(
        absl::ToDoubleSeconds(step) / count, count);
    last_token_ += step;
  }
  num_told_ += count;
  metrics_->generation_tokens->Increment(count);
  return response;
}

void Reply::CountEnd() {
  metrics_->request_generation_tokens->Observe(num_told_);
  if (num_told_ == 0) return;
  metrics_->decode_time->Observe(
      absl::ToDoubleSeconds(last_token_ - first_token_));
}

v1::GenerateResponse Reply::Finished(const FinishRequest& finish,
                                     const SpeculationFigures& figures,
                                     const std::string& drafter) {
  v1::GenerateResponse response;
  v1::GenerateFinished* finished = response.mutable_finished();
  finished->set_choice(choice_);
  finished->set_finish_reason(ToProto(finish.reason));
  SetMatched(finish, finished);
  finished->set_text(text_.Finish());
  v1::Usage* usage = finished->mutable_usage();
  usage->set_prompt_tokens(
      static_cast<int32_t>(request_->params.prompt.size()));
  usage->set_completion_tokens(num_tokens());
  usage->set_cached_prompt_tokens(cached_prompt_tokens_);
  *finished->mutable_speculation() =
      MakeStats(figures, request_->params.speculation, drafter);
  if (finish.trace != nullptr) {
    *finished->mutable_trace() =
        MakePassTrace(*finish.trace, *request_->model->tokenizer);
  }
  v1::GenerateTimings* const timings = finished->mutable_timings();
  *timings = Timings();
  // On a machine that is busy the tokens of many passes may come together: then
  // the time between the first and the last is not what they took.
  const double passes_ms = absl::ToDoubleMilliseconds(figures.passes_time);
  const double took_ms = std::max(timings->generation_time_ms(), passes_ms);
  if (request_->params.speculation.enabled && took_ms > 0 &&
      num_told_ >= kLeastTokensForSpeedup) {
    finished->mutable_speculation()->set_measured_speedup(
        (num_told_ - 1) * absl::ToDoubleMilliseconds(figures.plain_step) /
        took_ms);
  }
  return response;
}

void Reply::SetMatched(const FinishRequest& finish,
                       v1::GenerateFinished* finished) const {
  if (finish.stop_text && text_.stop_text() != nullptr) {
    finished->set_stop_text(*text_.stop_text());
  }
  const std::optional<int32_t>& stop_token_id = finish.stop_token_id;
  if (!stop_token_id.has_value()) return;
  const std::vector<int32_t>& eos = request_->model->info.model.eos_ids;
  const bool is_eos =
      std::find(eos.begin(), eos.end(), *stop_token_id) != eos.end();
  if (is_eos && !request_->stop.ignore_eos) {
    finished->set_eos_token_id(*stop_token_id);
  } else {
    finished->set_stop_token_id(*stop_token_id);
  }
}

v1::GenerateTimings Reply::Timings() const {
  v1::GenerateTimings timings;
  if (first_step_.has_value()) {
    timings.set_queue_time_ms(
        absl::ToDoubleMilliseconds(*first_step_ - arrival_));
  }
  if (num_told_ == 0) return timings;
  const absl::Duration generation = last_token_ - first_token_;
  timings.set_time_to_first_token_ms(
      absl::ToDoubleMilliseconds(first_token_ - arrival_));
  timings.set_generation_time_ms(absl::ToDoubleMilliseconds(generation));
  if (num_told_ > 1) {
    timings.set_mean_itl_ms(absl::ToDoubleMilliseconds(generation) /
                            (num_told_ - 1));
    if (generation > absl::ZeroDuration()) {
      timings.set_tokens_per_second((num_told_ - 1) /
                                    absl::ToDoubleSeconds(generation));
    }
  }
  return timings;
}

}  // namespace specwire::coordinator
