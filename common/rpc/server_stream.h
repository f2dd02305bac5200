// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/limits.h"
#include "common/rpc/message_checksum.h"
#include "common/rpc/outgoing_queue.h"
#include "common/rpc/status.h"
#include "common/rpc/stream.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

// The server's side of streams; stream.h tells how handlers and senders behave.
//
//   grpc::ServerBidiReactor<v1::DecodeRequest, v1::DecodeResponse>* Decode(
//       grpc::CallbackServerContext* context) override {
//     return StartServerStream<v1::DecodeRequest, v1::DecodeResponse>(
//         context, StreamLimits(), [&](auto sender) {
//           return std::make_shared<DecodeHandler>(engine_, std::move(sender));
//         });
//   }

namespace specwire {

// When the caller stops waiting; InfiniteFuture if it named no deadline.
inline absl::Time DeadlineOf(const grpc::CallbackServerContext& context) {
  const std::chrono::system_clock::time_point deadline = context.deadline();
  return deadline == std::chrono::system_clock::time_point::max()
             ? absl::InfiniteFuture()
             : absl::FromChrono(deadline);
}

// The shared part of ServerStream and ServerWriter: the queue, and who may
// start which operation when. A reactor lives until gRPC's OnDone, which comes
// only after its Finish was called, and that is called here, once, and only
// while no write is in flight: so whoever is allowed to start a write by the
// state below knows that the reactor still exists.
//
// Context is a parameter so that tests can run this with a transport of theirs,
// which ThreadSanitizer understands.
template <class Reactor, class Out, class Context = grpc::CallbackServerContext>
class ServerStreamState final : public ServerSender<Out> {
 public:
  ServerStreamState(Reactor* reactor,
                    Context* context,
                    const StreamLimits& limits)
      : reactor_(reactor), context_(context), queue_(limits) {}

  bool Send(Out message) override {
    return SendNumbered([&](int64_t) { return std::move(message); });
  }

  bool SendNumbered(absl::FunctionRef<Out(int64_t)> make) override {
    Step step;
    bool accepted = true;
    {
      MutexLock lock(&mutex_);
      if (closing_) return false;
      accepted = queue_.Push(make(num_accepted_));
      if (accepted) {
        ++num_accepted_;
      } else {
        CancelLocked(absl::ResourceExhaustedError(
            "the stream's outgoing queue is full: the peer reads too slowly"));
      }
      step = NextLocked();
    }
    Run(std::move(step));
    return accepted;
  }

  size_t num_queued() const override {
    MutexLock lock(&mutex_);
    return queue_.size();
  }

  void Finish(absl::Status status) override {
    Step step;
    {
      MutexLock lock(&mutex_);
      if (closing_) return;
      closing_ = true;
      final_status_ = std::move(status);
      step = NextLocked();
    }
    Run(std::move(step));
  }

  void Cancel(absl::Status status) override {
    Step step;
    {
      MutexLock lock(&mutex_);
      if (finish_started_ || cancelled_) return;
      CancelLocked(std::move(status));
      step = NextLocked();
    }
    Run(std::move(step));
  }

  // The rest is for the reactors.

  // The peer is gone: nothing that is queued will arrive.
  void OnPeerGone() {
    Step step;
    {
      MutexLock lock(&mutex_);
      DropLocked();
      step = NextLocked();
    }
    Run(std::move(step));
  }

  // Returns how many messages are left.
  size_t OnWriteDone(bool ok) {
    Step step;
    size_t num_queued = 0;
    {
      MutexLock lock(&mutex_);
      queue_.EndWrite();
      if (!ok) DropLocked();
      num_queued = queue_.size();
      step = NextLocked();
    }
    Run(std::move(step));
    return num_queued;
  }

  bool closing() const {
    MutexLock lock(&mutex_);
    return closing_;
  }

  // Called in the reactor's OnDone; returns what the handler is told.
  absl::Status End() {
    MutexLock lock(&mutex_);
    const bool lost = context_->IsCancelled() && !cancelled_;
    const bool late = context_->deadline() < std::chrono::system_clock::now();
    context_ = nullptr;
    closing_ = true;
    queue_.DropWaiting();
    if (!lost) return final_status_;
    if (late) return absl::DeadlineExceededError("the call's deadline passed");
    return absl::CancelledError("the peer cancelled the stream or vanished");
  }

 private:
  // What is to be done after the lock has been released.
  struct Step {
    const Out* write = nullptr;
    bool finish = false;
    absl::Status status;
  };

  void DropLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!closing_) {
      closing_ = true;
      final_status_ = absl::CancelledError("the stream was cancelled");
    }
    queue_.DropWaiting();
  }

  void CancelLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    closing_ = true;
    cancelled_ = true;
    final_status_ = std::move(status);
    queue_.DropWaiting();
    // A write that flow control holds ends only with the call. Under the lock,
    // because the context goes with the reactor.
    if (queue_.writing() && context_ != nullptr) context_->TryCancel();
  }

  Step NextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Step step;
    if (queue_.writing() || finish_started_) return step;
    if (queue_.has_waiting()) {
      step.write = queue_.BeginWrite();
    } else if (closing_) {
      finish_started_ = true;
      step.finish = true;
      step.status = final_status_;
    }
    return step;
  }

  void Run(Step step) {
    if (step.write != nullptr) reactor_->StartWrite(step.write);
    if (step.finish) reactor_->Finish(ToGrpcStatus(step.status));
  }

  Reactor* const reactor_;
  mutable Mutex mutex_;
  // Null after OnDone.
  Context* context_ ABSL_GUARDED_BY(mutex_);
  OutgoingQueue<Out> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t num_accepted_ ABSL_GUARDED_BY(mutex_) = 0;
  // Nothing more is accepted; final_status_ is set.
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  // Ended by our side before all was written: final_status_ stands whatever the
  // peer did.
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool finish_started_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status final_status_ ABSL_GUARDED_BY(mutex_);
};

// A bidirectional stream; deletes itself.
template <class In, class Out>
class ServerStream final : public grpc::ServerBidiReactor<In, Out> {
 public:
  using State = ServerStreamState<grpc::ServerBidiReactor<In, Out>, Out>;

  ServerStream(grpc::CallbackServerContext* context, const StreamLimits& limits)
      : state_(std::make_shared<State>(this, context, limits)) {}

  const std::shared_ptr<State>& state() const { return state_; }

  void Begin(std::shared_ptr<StreamHandler<In>> handler) {
    handler_ = std::move(handler);
    this->StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (!state_->closing() && handler_->OnPeerDone()) {
        state_->Finish(absl::OkStatus());
      }
      return;
    }
    absl::Status status = CheckChecksum(num_received_++, &incoming_);
    if (!status.ok()) {
      state_->Cancel(std::move(status));
    } else if (!state_->closing()) {
      handler_->OnMessage(std::move(incoming_));
    }
    if (state_->closing()) return;
    incoming_ = In();
    this->StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const size_t num_queued = state_->OnWriteDone(ok);
    if (ok) handler_->OnWritten(num_queued);
  }

  void OnCancel() override { state_->OnPeerGone(); }

  void OnDone() override {
    handler_->OnClosed(state_->End());
    delete this;
  }

 private:
  // Shared with all who send.
  const std::shared_ptr<State> state_;
  std::shared_ptr<StreamHandler<In>> handler_;
  In incoming_;
  int64_t num_received_ = 0;
};

// A server stream; deletes itself.
template <class Out>
class ServerWriter final : public grpc::ServerWriteReactor<Out> {
 public:
  using State = ServerStreamState<grpc::ServerWriteReactor<Out>, Out>;

  ServerWriter(grpc::CallbackServerContext* context, const StreamLimits& limits)
      : state_(std::make_shared<State>(this, context, limits)) {}

  const std::shared_ptr<State>& state() const { return state_; }

  void Begin(std::shared_ptr<WriterHandler> handler) {
    handler_ = std::move(handler);
  }

  void OnWriteDone(bool ok) override {
    const size_t num_queued = state_->OnWriteDone(ok);
    if (ok) handler_->OnWritten(num_queued);
  }

  void OnCancel() override { state_->OnPeerGone(); }

  void OnDone() override {
    handler_->OnClosed(state_->End());
    delete this;
  }

 private:
  // Shared with all who send.
  const std::shared_ptr<State> state_;
  std::shared_ptr<WriterHandler> handler_;
};

// Serves one call of a bidirectional method; returns what the method returns.
// `make_handler` is called at once and must not return null. It may already
// send, or refuse the call with Finish.
template <class In, class Out>
grpc::ServerBidiReactor<In, Out>* StartServerStream(
    grpc::CallbackServerContext* context,
    const StreamLimits& limits,
    absl::FunctionRef<std::shared_ptr<StreamHandler<In>>(
        std::shared_ptr<ServerSender<Out>>)> make_handler) {
  auto* stream = new ServerStream<In, Out>(context, limits);
  stream->Begin(make_handler(stream->state()));
  return stream;
}

// The same for a method that only sends.
template <class Out>
grpc::ServerWriteReactor<Out>* StartServerWriter(
    grpc::CallbackServerContext* context,
    const StreamLimits& limits,
    absl::FunctionRef<std::shared_ptr<WriterHandler>(
        std::shared_ptr<ServerSender<Out>>)> make_handler) {
  auto* stream = new ServerWriter<Out>(context, limits);
  stream->Begin(make_handler(stream->state()));
  return stream;
}

}  // namespace specwire
