// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/limits.h"
#include "common/rpc/message_checksum.h"
#include "common/rpc/outgoing_queue.h"
#include "common/rpc/status.h"
#include "common/rpc/stream.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "grpcpp/support/status.h"

// The client's side of bidirectional streams; stream.h tells how handlers and
// senders behave.
//
//   std::shared_ptr<ClientSender<v1::DecodeRequest>> sender =
//       StartClientStream<v1::DecodeRequest, v1::DecodeResponse>(
//           ClientStreamOptions(), handler,
//           [&](grpc::ClientContext* context, auto* reactor) {
//             stub->async()->Decode(context, reactor);
//           });
//   sender->Send(open);

namespace specwire {

struct ClientStreamOptions {
  StreamLimits limits;
  absl::Time deadline = absl::InfiniteFuture();
  // Waits for a connection (for ever, without a deadline) instead of failing
  // with UNAVAILABLE.
  bool wait_for_ready = false;
  // Sent with the call; keys in lower case.
  std::vector<std::pair<std::string, std::string>> metadata;
};

inline std::unique_ptr<grpc::ClientContext> NewClientContext(
    const ClientStreamOptions& options) {
  auto context = std::make_unique<grpc::ClientContext>();
  if (options.deadline != absl::InfiniteFuture()) {
    context->set_deadline(absl::ToChronoTime(options.deadline));
  }
  context->set_wait_for_ready(options.wait_for_ready);
  for (const auto& [key, value] : options.metadata) {
    context->AddMetadata(key, value);
  }
  return context;
}

// The shared part of a client stream: the queue, and who may start which
// operation when. The reactor has one hold, which keeps gRPC from calling
// OnDone. It is removed once the last read has failed and no operation is in
// flight, and no operation is started after that: so whoever is allowed to
// start one by the state below knows that the reactor still exists.
//
// Context is a parameter so that tests can run this with a transport of theirs,
// which ThreadSanitizer understands.
template <class Reactor, class Out, class Context = grpc::ClientContext>
class ClientStreamState final : public ClientSender<Out> {
 public:
  ClientStreamState(Reactor* reactor,
                    std::unique_ptr<Context> context,
                    const StreamLimits& limits)
      : reactor_(reactor), context_(std::move(context)), queue_(limits) {}

  bool Send(Out message) override {
    Step step;
    bool accepted = true;
    {
      MutexLock lock(&mutex_);
      if (closing_ || writes_done_wanted_) return false;
      accepted = queue_.Push(std::move(message));
      if (!accepted) {
        override_status_ = absl::ResourceExhaustedError(
            "the stream's outgoing queue is full: the peer reads too slowly");
        CancelLocked();
      }
      step = NextLocked();
    }
    Run(step);
    return accepted;
  }

  size_t num_queued() const override {
    MutexLock lock(&mutex_);
    return queue_.size();
  }

  void WritesDone() override {
    Step step;
    {
      MutexLock lock(&mutex_);
      if (closing_ || writes_done_wanted_) return;
      writes_done_wanted_ = true;
      step = NextLocked();
    }
    Run(step);
  }

  void Cancel() override {
    MutexLock lock(&mutex_);
    CancelLocked();
  }

  // Ends the stream now. OnClosed tells `status`, unless it had ended.
  void Fail(absl::Status status) {
    MutexLock lock(&mutex_);
    if (!closing_) override_status_ = std::move(status);
    CancelLocked();
  }

  // The rest is for the reactor.

  // Valid before StartCall.
  Context* context() {
    MutexLock lock(&mutex_);
    return context_.get();
  }

  // Returns how many messages are left.
  size_t OnWriteDone(bool ok) {
    Step step;
    size_t num_queued = 0;
    {
      MutexLock lock(&mutex_);
      queue_.EndWrite();
      if (!ok) CloseLocked();
      num_queued = queue_.size();
      step = NextLocked();
    }
    Run(step);
    return num_queued;
  }

  void OnWritesDoneDone() {
    Step step;
    {
      MutexLock lock(&mutex_);
      ending_writes_ = false;
      step = NextLocked();
    }
    Run(step);
  }

  void OnReadsDone() {
    Step step;
    {
      MutexLock lock(&mutex_);
      CloseLocked();
      reads_done_ = true;
      step = NextLocked();
    }
    Run(step);
  }

  // Called in the reactor's OnDone; returns what the handler is told.
  absl::Status End(const grpc::Status& status) {
    // Destroyed after the lock has been released.
    std::unique_ptr<Context> context;
    MutexLock lock(&mutex_);
    context = std::move(context_);
    CloseLocked();
    if (!override_status_.ok()) return override_status_;
    return FromGrpcStatus(status);
  }

 private:
  // What is to be done after the lock has been released.
  struct Step {
    const Out* write = nullptr;
    bool end_writes = false;
    bool remove_hold = false;
  };

  void CloseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    closing_ = true;
    queue_.DropWaiting();
  }

  void CancelLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    CloseLocked();
    // Under the lock, because the context goes in End. All pending operations
    // fail, the read too, which then removes the hold.
    if (context_ != nullptr) context_->TryCancel();
  }

  Step NextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Step step;
    if (queue_.writing() || ending_writes_) return step;
    if (reads_done_) {
      step.remove_hold = hold_;
      hold_ = false;
    } else if (closing_) {
      // The read will fail.
    } else if (queue_.has_waiting()) {
      step.write = queue_.BeginWrite();
    } else if (writes_done_wanted_ && !writes_done_) {
      writes_done_ = true;
      ending_writes_ = true;
      step.end_writes = true;
    }
    return step;
  }

  void Run(const Step& step) {
    if (step.write != nullptr) reactor_->StartWrite(step.write);
    if (step.end_writes) reactor_->StartWritesDone();
    if (step.remove_hold) reactor_->RemoveHold();
  }

  Reactor* const reactor_;
  mutable Mutex mutex_;
  // Null after OnDone.
  std::unique_ptr<Context> context_ ABSL_GUARDED_BY(mutex_);
  OutgoingQueue<Out> queue_ ABSL_GUARDED_BY(mutex_);
  // Nothing more is accepted.
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool writes_done_wanted_ ABSL_GUARDED_BY(mutex_) = false;
  bool writes_done_ ABSL_GUARDED_BY(mutex_) = false;
  // A StartWritesDone is in flight.
  bool ending_writes_ ABSL_GUARDED_BY(mutex_) = false;
  bool reads_done_ ABSL_GUARDED_BY(mutex_) = false;
  bool hold_ ABSL_GUARDED_BY(mutex_) = true;
  // Told instead of the call's status unless OK.
  absl::Status override_status_ ABSL_GUARDED_BY(mutex_);
};

// A bidirectional stream; deletes itself.
template <class Out, class In>
class ClientStream final : public grpc::ClientBidiReactor<Out, In> {
 public:
  using State = ClientStreamState<grpc::ClientBidiReactor<Out, In>, Out>;

  ClientStream(const ClientStreamOptions& options,
               std::shared_ptr<StreamHandler<In>> handler)
      : state_(std::make_shared<State>(
            this, NewClientContext(options), options.limits)),
        handler_(std::move(handler)) {}

  const std::shared_ptr<State>& state() const { return state_; }

  // The reactor may be gone when it returns.
  void Begin() {
    this->AddHold();
    this->StartRead(&incoming_);
    this->StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      state_->OnReadsDone();
      return;
    }
    absl::Status status = CheckChecksum(num_received_++, &incoming_);
    if (status.ok()) {
      handler_->OnMessage(std::move(incoming_));
    } else {
      state_->Fail(std::move(status));
    }
    incoming_ = In();
    this->StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const size_t num_queued = state_->OnWriteDone(ok);
    if (ok) handler_->OnWritten(num_queued);
  }

  void OnWritesDoneDone(bool /*ok*/) override { state_->OnWritesDoneDone(); }

  void OnDone(const grpc::Status& status) override {
    handler_->OnClosed(state_->End(status));
    delete this;
  }

 private:
  // Shared with all who send.
  const std::shared_ptr<State> state_;
  const std::shared_ptr<StreamHandler<In>> handler_;
  In incoming_;
  int64_t num_received_ = 0;
};

// Opens a stream with `call`, which is called once, at once. The handler's
// calls, OnClosed included, may begin before this returns. The stub need not
// outlive the stream.
template <class Out, class In>
std::shared_ptr<ClientSender<Out>> StartClientStream(
    const ClientStreamOptions& options,
    std::shared_ptr<StreamHandler<In>> handler,
    absl::FunctionRef<void(grpc::ClientContext*,
                           grpc::ClientBidiReactor<Out, In>*)> call) {
  auto* stream = new ClientStream<Out, In>(options, std::move(handler));
  std::shared_ptr<ClientSender<Out>> sender = stream->state();
  call(stream->state()->context(), stream);
  stream->Begin();
  return sender;
}

}  // namespace specwire
