// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/inspection.h"

#include <algorithm>
#include <numeric>

#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"

namespace specwire::verifier {
namespace {

// What of `params` is in force up to a stage: the rest stays off, so that the
// pipeline itself tells what it has made of the logits so far.
SamplingParams ParamsUpTo(PipelineStage stage, const SamplingParams& params) {
  SamplingParams some;
  if (stage >= PipelineStage::kLogitBias) some.logit_bias = params.logit_bias;
  if (stage >= PipelineStage::kRepetitionPenalty) {
    some.repetition_penalty = params.repetition_penalty;
  }
  if (stage >= PipelineStage::kFrequencyPenalty) {
    some.frequency_penalty = params.frequency_penalty;
  }
  if (stage >= PipelineStage::kPresencePenalty) {
    some.presence_penalty = params.presence_penalty;
  }
  if (stage >= PipelineStage::kTemperature) {
    some.temperature = params.temperature;
  }
  if (stage >= PipelineStage::kMinP) some.min_p = params.min_p;
  if (stage >= PipelineStage::kTopK) some.top_k = params.top_k;
  if (stage >= PipelineStage::kTopP) some.top_p = params.top_p;
  return some;
}

bool IsActive(PipelineStage stage,
              const SamplingParams& params,
              const SequenceContext& context,
              int position) {
  switch (stage) {
    case PipelineStage::kRaw:
      return true;
    case PipelineStage::kLogitBias:
      return !params.logit_bias.empty();
    case PipelineStage::kMinTokens:
      return position < context.prompt_length + context.min_tokens;
    case PipelineStage::kRepetitionPenalty:
      return params.repetition_penalty != 1;
    case PipelineStage::kFrequencyPenalty:
      return params.frequency_penalty != 0;
    case PipelineStage::kPresencePenalty:
      return params.presence_penalty != 0;
    case PipelineStage::kTemperature:
      return params.temperature != 1;
    case PipelineStage::kMinP:
      return params.min_p > 0;
    case PipelineStage::kTopK:
      return params.top_k > 0;
    case PipelineStage::kTopP:
      return params.top_p < 1;
  }
  return false;
}

TokenDistribution Likeliest(const TokenDistribution& all, int count) {
  std::vector<size_t> order(all.token_ids.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t kept = std::min(order.size(), static_cast<size_t>(count));
  std::partial_sort(order.begin(),
                    order.begin() + static_cast<std::ptrdiff_t>(kept),
                    order.end(),
                    [&](size_t a, size_t b) {
                      return all.probabilities[a] != all.probabilities[b]
                                 ? all.probabilities[a] > all.probabilities[b]
                                 : all.token_ids[a] < all.token_ids[b];
                    });
  TokenDistribution top;
  for (size_t i = 0; i < kept; ++i) {
    top.token_ids.push_back(all.token_ids[order[i]]);
    top.probabilities.push_back(all.probabilities[order[i]]);
  }
  return top;
}

// A pass over `tokens` that chooses the next one.
absl::Status Choose(Engine* engine,
                    KvSequence* kv,
                    absl::Span<const int32_t> tokens,
                    CacheInspection::Work* work) {
  int32_t best = -1;
  const ForwardRun run = {.kv = kv,
                          .tokens = tokens,
                          .num_logits = 1,
                          .best = absl::MakeSpan(&best, 1)};
  const int64_t before = engine->kv_rows_projected();
  const absl::Time start = absl::Now();
  SPECWIRE_RETURN_IF_ERROR(engine->Forward({&run, 1}).status());
  work->duration += absl::Now() - start;
  work->key_rows.push_back(engine->kv_rows_projected() - before);
  if (best < 0) {
    return absl::InternalError("the model's logits are not numbers");
  }
  work->tokens.push_back(best);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> AttentionInspection::Step(Engine* engine) {
  const std::unique_ptr<KvSequence> kv = engine->NewSequence();
  const ForwardRun run = {
      .kv = kv.get(), .tokens = tokens_, .attention = &probe_};
  SPECWIRE_RETURN_IF_ERROR(engine->Forward({&run, 1}).status());
  return true;
}

absl::StatusOr<bool> NextTokenInspection::Step(Engine* engine) {
  if (logits_.empty()) {
    const std::unique_ptr<KvSequence> kv = engine->NewSequence();
    const ForwardRun run = {.kv = kv.get(), .tokens = tokens_, .num_logits = 1};
    SPECWIRE_ASSIGN_OR_RETURN(const absl::Span<const float> row,
                              engine->Forward({&run, 1}));
    logits_.assign(row.begin(), row.end());
    if (logits_.empty()) {
      return absl::InternalError("the engine computed no logits");
    }
    return false;
  }
  const auto kind = static_cast<PipelineStage>(stages_.size());
  SequenceContext context = context_;
  if (kind < PipelineStage::kMinTokens) context.min_tokens = 0;
  Pipeline pipeline(ParamsUpTo(kind, sampling_), std::move(context));
  const TokenDistribution& distribution =
      pipeline.Distribution(logits_, {.settled = tokens_, .run = {}});
  Stage& stage = stages_.emplace_back();
  stage.active =
      IsActive(kind, sampling_, context_, static_cast<int>(tokens_.size()));
  stage.num_left = static_cast<int>(distribution.token_ids.size());
  stage.top = Likeliest(distribution, top_);
  return stages_.size() == kNumPipelineStages;
}

absl::StatusOr<bool> CacheInspection::Step(Engine* engine) {
  if (with_cache_.tokens.size() < num_tokens_) {
    if (kv_ == nullptr) {
      kv_ = engine->NewSequence();
      SPECWIRE_RETURN_IF_ERROR(
          Choose(engine, kv_.get(), prompt_, &with_cache_));
    } else {
      const int32_t last = with_cache_.tokens.back();
      SPECWIRE_RETURN_IF_ERROR(
          Choose(engine, kv_.get(), {&last, 1}, &with_cache_));
    }
    return false;
  }
  kv_ = nullptr;
  std::vector<int32_t> text = prompt_;
  text.insert(
      text.end(), without_cache_.tokens.begin(), without_cache_.tokens.end());
  const std::unique_ptr<KvSequence> fresh = engine->NewSequence();
  SPECWIRE_RETURN_IF_ERROR(Choose(engine, fresh.get(), text, &without_cache_));
  if (without_cache_.tokens.size() < num_tokens_) return false;
  if (without_cache_.tokens != with_cache_.tokens) {
    return absl::InternalError(
        "the text without a cache is not that with a cache");
  }
  return true;
}

}  // namespace specwire::verifier
