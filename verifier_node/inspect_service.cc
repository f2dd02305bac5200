// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/inspect_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/base/draining.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/status.h"
#include "verifier_node/inspection.h"

namespace specwire::verifier {
namespace {

constexpr size_t kMaxInspectBytes = 8192;
constexpr int kDefaultTop = 16;
// For those whose caller sets no limit, or a longer one.
constexpr absl::Duration kMaxDuration = absl::Seconds(30);

absl::Status CheckRange(absl::string_view field, int value, int low, int high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, " is not between ", low, " and ", high));
}

// The tokens of a text that may be empty.
absl::StatusOr<std::vector<int32_t>> TokensOf(const v1::InspectText& text,
                                              const Tokenizer& tokenizer,
                                              absl::string_view field) {
  std::vector<int32_t> tokens;
  if (text.has_token_ids()) {
    const auto& ids = text.token_ids().ids();
    // Before anything is done for each of them.
    if (ids.size() > kMaxInspectTokens) {
      return absl::InvalidArgumentError(absl::StrCat(
          field, ": has ", ids.size(), " tokens; at most ", kMaxInspectTokens));
    }
    for (const int32_t id : ids) {
      SPECWIRE_RETURN_IF_ERROR(CheckRange(absl::StrCat(field, ".token_ids"),
                                          id,
                                          0,
                                          tokenizer.vocab_size() - 1));
    }
    tokens.assign(ids.begin(), ids.end());
  } else if (text.text().size() > kMaxInspectBytes) {
    return absl::InvalidArgumentError(absl::StrCat(field,
                                                   ".text: has ",
                                                   text.text().size(),
                                                   " bytes; at most ",
                                                   kMaxInspectBytes));
  } else {
    SPECWIRE_ASSIGN_OR_RETURN(
        tokens, tokenizer.Encode(text.text(), SpecialTokens::kRecognise));
  }
  return tokens;
}

absl::Status CheckLength(const std::vector<int32_t>& tokens,
                         const ModelInfo& model,
                         int more,
                         absl::string_view field) {
  const int most = std::min(kMaxInspectTokens, model.max_model_len - more);
  if (!tokens.empty() && tokens.size() <= static_cast<size_t>(most)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": has ", tokens.size(), " tokens; must be 1 to ", most));
}

void FillToken(int32_t id, const Tokenizer& tokenizer, v1::InspectedToken* to) {
  to->set_token_id(id);
  to->set_bytes(std::string(tokenizer.TokenBytes(id)));
}

template <class Field>
void FillTokens(absl::Span<const int32_t> ids,
                const Tokenizer& tokenizer,
                Field* field) {
  for (const int32_t id : ids) FillToken(id, tokenizer, field->Add());
}

// Hands the inspection to the engine thread, and finishes the call when it has
// ended, well with what `fill` makes of its result.
template <class Kind, class Fill>
grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context,
                              EngineThread* thread,
                              absl::StatusOr<std::shared_ptr<Kind>> inspection,
                              Fill fill) {
  using Worker = StreamWorker<DecodeEvent>;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (!inspection.ok()) {
    reactor->Finish(ToGrpcStatus(inspection.status()));
    return reactor;
  }
  const auto done = [reactor, kind = *inspection, fill](absl::Status status) {
    if (status.ok()) status = fill(*kind);
    reactor->Finish(ToGrpcStatus(status));
  };
  OpenInspection open;
  open.inspection = *inspection;
  open.deadline = std::min(DeadlineOf(*context), absl::Now() + kMaxDuration);
  open.abandoned = [context] { return context->IsCancelled(); };
  open.done = done;
  Worker* const worker = thread->worker();
  const Worker::StreamId stream = worker->Open();
  if (stream == Worker::kNone) {
    done(worker->draining() ? DrainingError("the node is draining")
                            : absl::ResourceExhaustedError(
                                  "too many streams are open; retry when one "
                                  "has ended"));
  } else if (worker->Post(stream, std::move(open), kMaxInspectBytes) !=
             Worker::PostResult::kPosted) {
    done(DrainingError("shutting down"));
  }
  return reactor;
}

absl::StatusOr<std::shared_ptr<AttentionInspection>> MakeAttention(
    const v1::InspectAttentionRequest& request,
    const ModelInfo& model,
    const Tokenizer& tokenizer) {
  if (model.num_heads == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model \"", model.name, "\" has no attention"));
  }
  SPECWIRE_RETURN_IF_ERROR(
      CheckRange("layer", request.layer(), 0, model.num_layers - 1));
  SPECWIRE_RETURN_IF_ERROR(
      CheckRange("head", request.head(), 0, model.num_heads - 1));
  SPECWIRE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                            TokensOf(request.text(), tokenizer, "text"));
  SPECWIRE_RETURN_IF_ERROR(CheckLength(tokens, model, 0, "text"));
  return std::make_shared<AttentionInspection>(std::move(tokens),
                                               request.layer());
}

absl::StatusOr<std::shared_ptr<NextTokenInspection>> MakeNextToken(
    const v1::InspectNextTokenRequest& request,
    const ModelInfo& model,
    const Tokenizer& tokenizer) {
  SPECWIRE_ASSIGN_OR_RETURN(SamplingParams sampling,
                            FromProto(request.sampling(), /*default_seed=*/0));
  SPECWIRE_RETURN_IF_ERROR(ValidateSampling(sampling, model.vocab_size));
  const int top = request.has_top() ? request.top() : kDefaultTop;
  SPECWIRE_RETURN_IF_ERROR(CheckRange("top", top, 1, kMaxInspectTop));
  SPECWIRE_RETURN_IF_ERROR(
      CheckRange("min_tokens", request.min_tokens(), 0, model.max_model_len));
  SPECWIRE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                            TokensOf(request.prompt(), tokenizer, "prompt"));
  SequenceContext context;
  context.prompt_length = static_cast<int>(tokens.size());
  context.min_tokens = request.min_tokens();
  context.end_token_ids = model.eos_ids;
  SPECWIRE_ASSIGN_OR_RETURN(
      const std::vector<int32_t> completion,
      TokensOf(request.completion(), tokenizer, "completion"));
  tokens.insert(tokens.end(), completion.begin(), completion.end());
  SPECWIRE_RETURN_IF_ERROR(
      CheckLength(tokens, model, 0, "prompt and completion"));
  return std::make_shared<NextTokenInspection>(
      std::move(tokens), std::move(sampling), std::move(context), top);
}

absl::StatusOr<std::shared_ptr<CacheInspection>> MakeCache(
    const v1::InspectCacheRequest& request,
    const ModelInfo& model,
    const Tokenizer& tokenizer) {
  SPECWIRE_RETURN_IF_ERROR(
      CheckRange("num_tokens", request.num_tokens(), 1, kMaxInspectGenerated));
  SPECWIRE_ASSIGN_OR_RETURN(std::vector<int32_t> prompt,
                            TokensOf(request.prompt(), tokenizer, "prompt"));
  SPECWIRE_RETURN_IF_ERROR(
      CheckLength(prompt, model, request.num_tokens(), "prompt"));
  return std::make_shared<CacheInspection>(std::move(prompt),
                                           request.num_tokens());
}

v1::PipelineStageKind ToProto(PipelineStage stage) {
  return static_cast<v1::PipelineStageKind>(static_cast<int>(stage) +
                                            v1::PIPELINE_STAGE_KIND_RAW);
}
static_assert(v1::PIPELINE_STAGE_KIND_TOP_P - v1::PIPELINE_STAGE_KIND_RAW ==
              static_cast<int>(PipelineStage::kTopP));

void FillWork(const CacheInspection::Work& work, v1::CacheWork* to) {
  to->mutable_key_rows()->Add(work.key_rows.begin(), work.key_rows.end());
  to->set_duration_us(absl::ToInt64Microseconds(work.duration));
}

}  // namespace

absl::StatusOr<std::unique_ptr<InspectServiceImpl>> InspectServiceImpl::Create(
    const Engine& engine, EngineThread* thread) {
  SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                            Tokenizer::Create(engine.tokenizer_model()));
  // The constructor is private.
  return std::unique_ptr<InspectServiceImpl>(
      new InspectServiceImpl(engine.info(), std::move(tokenizer), thread));
}

InspectServiceImpl::InspectServiceImpl(const ModelInfo& model,
                                       std::unique_ptr<Tokenizer> tokenizer,
                                       EngineThread* thread)
    : model_(model), tokenizer_(std::move(tokenizer)), thread_(thread) {}

grpc::ServerUnaryReactor* InspectServiceImpl::InspectAttention(
    grpc::CallbackServerContext* context,
    const v1::InspectAttentionRequest* request,
    v1::InspectAttentionResponse* response) {
  const auto fill = [this, request, response](
                        const AttentionInspection& inspection) {
    const std::vector<int32_t>& tokens = inspection.tokens();
    const std::vector<float>& weights = inspection.weights();
    const auto heads = static_cast<size_t>(model_.num_heads);
    if (weights.size() != heads * tokens.size() * tokens.size()) {
      return absl::InternalError("the engine computed no attention weights");
    }
    FillTokens(tokens, *tokenizer_, response->mutable_tokens());
    response->set_num_layers(model_.num_layers);
    response->set_num_heads(model_.num_heads);
    for (int head = 0; head < model_.num_heads; ++head) {
      if (request->has_head() && request->head() != head) continue;
      v1::AttentionHead* const to = response->add_heads();
      to->set_head(head);
      for (size_t row = 0; row < tokens.size(); ++row) {
        const float* const from =
            weights.data() +
            (static_cast<size_t>(head) * tokens.size() + row) * tokens.size();
        to->mutable_weights()->Add(from, from + row + 1);
      }
    }
    return absl::OkStatus();
  };
  return Run(
      context, thread_, MakeAttention(*request, model_, *tokenizer_), fill);
}

grpc::ServerUnaryReactor* InspectServiceImpl::InspectNextToken(
    grpc::CallbackServerContext* context,
    const v1::InspectNextTokenRequest* request,
    v1::InspectNextTokenResponse* response) {
  const auto fill = [this, response](const NextTokenInspection& inspection) {
    const auto tokens = absl::MakeConstSpan(inspection.tokens());
    const auto prompt = static_cast<size_t>(inspection.prompt_length());
    FillTokens(
        tokens.first(prompt), *tokenizer_, response->mutable_prompt_tokens());
    FillTokens(tokens.subspan(prompt),
               *tokenizer_,
               response->mutable_completion_tokens());
    for (size_t i = 0; i < inspection.stages().size(); ++i) {
      const NextTokenInspection::Stage& stage = inspection.stages()[i];
      v1::PipelineStage* const to = response->add_stages();
      to->set_kind(ToProto(static_cast<PipelineStage>(i)));
      to->set_active(stage.active);
      to->set_num_left(stage.num_left);
      for (size_t j = 0; j < stage.top.token_ids.size(); ++j) {
        v1::TokenProbability* const entry = to->add_top();
        FillToken(stage.top.token_ids[j], *tokenizer_, entry->mutable_token());
        entry->set_probability(stage.top.probabilities[j]);
      }
    }
    return absl::OkStatus();
  };
  return Run(
      context, thread_, MakeNextToken(*request, model_, *tokenizer_), fill);
}

grpc::ServerUnaryReactor* InspectServiceImpl::InspectCache(
    grpc::CallbackServerContext* context,
    const v1::InspectCacheRequest* request,
    v1::InspectCacheResponse* response) {
  const auto fill = [this, response](const CacheInspection& inspection) {
    FillTokens(
        inspection.prompt(), *tokenizer_, response->mutable_prompt_tokens());
    FillTokens(inspection.with_cache().tokens,
               *tokenizer_,
               response->mutable_tokens());
    response->set_num_layers(model_.num_layers);
    FillWork(inspection.with_cache(), response->mutable_with_cache());
    FillWork(inspection.without_cache(), response->mutable_without_cache());
    return absl::OkStatus();
  };
  return Run(context, thread_, MakeCache(*request, model_, *tokenizer_), fill);
}

}  // namespace specwire::verifier
