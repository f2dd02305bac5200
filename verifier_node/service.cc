// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/service.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/draining.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"
#include "common/rpc/message_checksum.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/worker_stream.h"
#include "common/text/tokenizer.h"
#include "verifier_node/decode_convert.h"

namespace specwire::verifier {
namespace {

constexpr size_t kMaxChunkBytes = 262144;

// The engine thread's way to a stream.
class StreamSink final : public DecodeSink {
 public:
  explicit StreamSink(std::shared_ptr<ServerSender<v1::DecodeResponse>> sender)
      : sender_(std::move(sender)) {}

  bool Send(const Commit& commit, const StepReport& report) override {
    return sender_->Send(ToProto(commit, report));
  }
  bool SendPrompt(const LogprobRun& run) override {
    return sender_->Send(PromptToProto(run));
  }
  void Finish(absl::Status status) override {
    sender_->Finish(std::move(status));
  }

 private:
  const std::shared_ptr<ServerSender<v1::DecodeResponse>> sender_;
};

// The same for a score.
class ScoreStreamSink final : public ScoreSink {
 public:
  using Sender = std::shared_ptr<ServerSender<v1::ScoreTokensResponse>>;
  explicit ScoreStreamSink(Sender sender) : sender_(std::move(sender)) {}

  bool Send(const LogprobRun& run) override {
    return sender_->Send(ScoreToProto(run));
  }
  void Finish(absl::Status status) override {
    sender_->Finish(std::move(status));
  }

 private:
  const Sender sender_;
};

// Tells the engine thread when a score's peer has gone.
class ScoreHandler final : public WriterHandler {
 public:
  ScoreHandler(EngineThread* thread, EngineThread::StreamId stream)
      : thread_(thread), stream_(stream) {}
  void OnClosed(absl::Status /*status*/) override {
    thread_->worker()->Close(stream_);
  }

 private:
  EngineThread* const thread_;
  const EngineThread::StreamId stream_;
};

// A stream that only sends what was queued when it began.
class IgnoringHandler final : public WriterHandler {
 public:
  void OnClosed(absl::Status /*status*/) override {}
};

absl::StatusOr<DecodeEvent> ParseRequest(
    const v1::DecodeRequest& message,
    bool first,
    const ModelInfo& model,
    absl::Time deadline,
    const EngineThread& thread,
    const std::shared_ptr<ServerSender<v1::DecodeResponse>>& sender) {
  if (first != (message.event_case() == v1::DecodeRequest::kOpen)) {
    return absl::InvalidArgumentError(
        first ? "event: the first message must be open"
              : "event: open must come once, and first");
  }
  switch (message.event_case()) {
    case v1::DecodeRequest::kOpen: {
      SPECWIRE_ASSIGN_OR_RETURN(OpenSequence open,
                                FromProto(message.open(), model));
      SPECWIRE_RETURN_IF_ERROR(thread.CheckAdmission(
          open.priority, deadline, open.params.max_tokens));
      open.deadline = deadline;
      open.sink = std::make_shared<StreamSink>(sender);
      return open;
    }
    case v1::DecodeRequest::kProposal:
      return FromProto(message.proposal());
    case v1::DecodeRequest::kTune:
      return FromProto(message.tune());
    // Answered before it comes here.
    case v1::DecodeRequest::kCheck:
    case v1::DecodeRequest::EVENT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("event: not set");
}

// Room for log-probabilities of a longest prompt, in chunks of four rows or
// more in the mean, whose reader is slow.
StreamLimits LimitsFor(const ModelInfo& model) {
  StreamLimits limits;
  limits.max_queued_messages +=
      static_cast<size_t>(model.max_model_len) / 4 + 1;
  return limits;
}

// Hands the score to the engine thread; the result is told of its end.
std::shared_ptr<WriterHandler> StartScore(OpenScore score,
                                          size_t num_bytes,
                                          const ScoreStreamSink::Sender& sender,
                                          EngineThread* thread) {
  using Worker = StreamWorker<DecodeEvent>;
  Worker* const worker = thread->worker();
  score.sink = std::make_shared<ScoreStreamSink>(sender);
  if (absl::Status status = thread->CheckAdmission(0, score.deadline, 0);
      !status.ok()) {
    sender->Finish(std::move(status));
    return std::make_shared<IgnoringHandler>();
  }
  const Worker::StreamId stream = worker->Open();
  if (stream == Worker::kNone) {
    sender->Finish(worker->draining()
                       ? DrainingError("the node is draining")
                       : absl::ResourceExhaustedError(
                             "too many streams are open; retry when one has "
                             "ended"));
  } else if (worker->Post(stream, std::move(score), num_bytes) !=
             Worker::PostResult::kPosted) {
    sender->Finish(DrainingError("shutting down"));
  }
  return std::make_shared<ScoreHandler>(thread, stream);
}

std::vector<v1::GetModelResponse> ModelMessages(
    const v1::ModelDescription& model,
    absl::Span<const StepCost> step_costs,
    absl::string_view tokenizer) {
  std::vector<v1::GetModelResponse> messages(1);
  *messages[0].mutable_model() = model;
  for (const StepCost& cost : step_costs) {
    v1::StepCost* const message = messages[0].add_step_costs();
    message->set_num_rows(cost.num_rows);
    message->set_context_length(cost.context_length);
    message->set_duration_us(absl::ToInt64Microseconds(cost.duration));
  }
  for (size_t at = 0; at < tokenizer.size(); at += kMaxChunkBytes) {
    messages.emplace_back().set_tokenizer_chunk(
        std::string(tokenizer.substr(at, kMaxChunkBytes)));
  }
  return messages;
}

}  // namespace

absl::StatusOr<std::unique_ptr<VerifierServiceImpl>>
VerifierServiceImpl::Create(const Engine& engine,
                            absl::Span<const StepCost> step_costs,
                            EngineThread* thread,
                            Counter* sent_bytes) {
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                            Tokenizer::Create(engine.tokenizer_model()));
  v1::ModelDescription model = ToProto(engine.info(),
                                       tokenizer->fingerprint(),
                                       thread->options().max_num_sequences);
  model.set_max_queued_sequences(thread->options().max_queued_sequences);
  model.set_local_drafter(std::string(thread->local_drafter()));
  // The constructor is private.
  return std::unique_ptr<VerifierServiceImpl>(new VerifierServiceImpl(
      engine.info(),
      ModelMessages(
          model, step_costs, SerializeTokenizer(engine.tokenizer_model())),
      thread,
      sent_bytes));
}

VerifierServiceImpl::VerifierServiceImpl(
    const ModelInfo& model,
    std::vector<v1::GetModelResponse> model_messages,
    EngineThread* thread,
    Counter* sent_bytes)
    : model_(model),
      model_messages_(std::move(model_messages)),
      thread_(thread),
      sent_bytes_(sent_bytes) {}

grpc::ServerWriteReactor<v1::GetModelResponse>* VerifierServiceImpl::GetModel(
    grpc::CallbackServerContext* context,
    const v1::GetModelRequest* /*request*/) {
  StreamLimits limits;
  limits.max_queued_messages = model_messages_.size();
  for (const v1::GetModelResponse& message : model_messages_) {
    limits.max_queued_bytes += message.ByteSizeLong();
  }
  return StartServerWriter<v1::GetModelResponse>(
      context, limits, [this](const auto& sender) {
        for (const v1::GetModelResponse& message : model_messages_) {
          sender->Send(message);
        }
        sender->Finish(absl::OkStatus());
        return std::make_shared<IgnoringHandler>();
      });
}

grpc::ServerBidiReactor<v1::DecodeRequest, v1::DecodeResponse>*
VerifierServiceImpl::Decode(grpc::CallbackServerContext* context) {
  using Stream =
      WorkerStream<v1::DecodeRequest, v1::DecodeResponse, DecodeEvent>;
  StreamLimits limits = LimitsFor(model_);
  limits.sent_bytes = sent_bytes_;
  return StartServerStream<v1::DecodeRequest, v1::DecodeResponse>(
      context,
      limits,
      [this, deadline = DeadlineOf(*context)](const auto& sender) {
        return std::make_shared<Stream>(
            thread_->worker(),
            sender,
            [this, sender, deadline](const v1::DecodeRequest& message,
                                     bool first) {
              return ParseRequest(
                  message, first, model_, deadline, *thread_, sender);
            },
            &watch_);
      });
}

grpc::ServerWriteReactor<v1::ScoreTokensResponse>*
VerifierServiceImpl::ScoreTokens(grpc::CallbackServerContext* context,
                                 const v1::ScoreTokensRequest* request) {
  return StartServerWriter<v1::ScoreTokensResponse>(
      context,
      LimitsFor(model_),
      [&](const auto& sender) -> std::shared_ptr<WriterHandler> {
        v1::ScoreTokensRequest sent = *request;
        absl::Status altered = CheckChecksum(0, &sent);
        if (!altered.ok()) {
          sender->Finish(std::move(altered));
          return std::make_shared<IgnoringHandler>();
        }
        absl::StatusOr<OpenScore> score = FromProto(sent, model_);
        if (!score.ok()) {
          sender->Finish(score.status());
          return std::make_shared<IgnoringHandler>();
        }
        score->deadline = DeadlineOf(*context);
        return StartScore(
            *std::move(score), request->SpaceUsedLong(), sender, thread_);
      });
}

}  // namespace specwire::verifier
