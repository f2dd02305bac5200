// SPDX-License-Identifier: Apache-2.0
#include "draft_node/service.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "common/rpc/message_checksum.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/worker_stream.h"
#include "draft_node/draft_convert.h"

namespace specwire::draft {
namespace {

// The drafter thread's way to a stream.
class StreamSink final : public DraftSink {
 public:
  explicit StreamSink(std::shared_ptr<ServerSender<v1::DraftResponse>> sender)
      : sender_(std::move(sender)) {}

  bool Send(const Proposal& proposal) override {
    return sender_->Send(ToProto(proposal));
  }
  void Finish(absl::Status status) override {
    sender_->Finish(std::move(status));
  }

 private:
  const std::shared_ptr<ServerSender<v1::DraftResponse>> sender_;
};

absl::StatusOr<DraftEvent> ParseRequest(
    const v1::DraftRequest& message,
    bool first,
    const std::shared_ptr<ServerSender<v1::DraftResponse>>& sender) {
  if (first != (message.event_case() == v1::DraftRequest::kOpen)) {
    return absl::InvalidArgumentError(
        first ? "event: the first message must be open"
              : "event: open must come once, and first");
  }
  switch (message.event_case()) {
    case v1::DraftRequest::kOpen: {
      SPECWIRE_ASSIGN_OR_RETURN(OpenDraft open, FromProto(message.open()));
      open.sink = std::make_shared<StreamSink>(sender);
      return open;
    }
    case v1::DraftRequest::kCommit:
      return FromProto(message.commit());
    case v1::DraftRequest::kRewind:
      return FromProto(message.rewind());
    case v1::DraftRequest::kTune:
      return FromProto(message.tune());
    // Answered before it comes here.
    case v1::DraftRequest::kCheck:
    case v1::DraftRequest::EVENT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("event: not set");
}

}  // namespace

DraftServiceImpl::DraftServiceImpl(const Drafter& drafter,
                                   DrafterThread* thread,
                                   int64_t draft_token_ns,
                                   Counter* sent_bytes)
    : thread_(thread), sent_bytes_(sent_bytes) {
  drafter_.set_drafter(drafter.name());
  drafter_.set_vocabulary_fingerprint(drafter.vocabulary_fingerprint());
  drafter_.set_model_digest(drafter.model_digest());
  drafter_.set_max_model_len(drafter.max_model_len());
  drafter_.set_synthetic(drafter.synthetic());
  drafter_.set_draft_token_ns(draft_token_ns);
  drafter_.set_max_num_sequences(thread->worker()->max_streams());
}

grpc::ServerUnaryReactor* DraftServiceImpl::GetDrafter(
    grpc::CallbackServerContext* context,
    const v1::GetDrafterRequest* /*request*/,
    v1::GetDrafterResponse* response) {
  *response = drafter_;
  SetChecksum(0, response);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerBidiReactor<v1::DraftRequest, v1::DraftResponse>*
DraftServiceImpl::Draft(grpc::CallbackServerContext* context) {
  using Stream = WorkerStream<v1::DraftRequest, v1::DraftResponse, DraftEvent>;
  StreamLimits limits;
  limits.sent_bytes = sent_bytes_;
  return StartServerStream<v1::DraftRequest, v1::DraftResponse>(
      context, limits, [this](const auto& sender) {
        return std::make_shared<Stream>(
            thread_->worker(),
            sender,
            [sender](const v1::DraftRequest& message, bool first) {
              return ParseRequest(message, first, sender);
            },
            &watch_);
      });
}

}  // namespace specwire::draft
