// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/draining.h"
#include "common/base/stream_worker.h"
#include "common/rpc/stream.h"
#include "common/rpc/stream_watch.h"

namespace specwire {

// A server's stream whose events go to a StreamWorker: it turns messages into
// events, refuses bad ones, opens the worker's stream with the first message,
// and ends the stream, and nothing else, when its peer floods it.
//
// It answers the peer's checks by itself and ends a stream from which messages
// were lost, or, if it is watched, whose peer has gone without a sign: both
// happen where a connection lives on but does not carry all that it is given.
//
// `Event()` is the event that tells that the peer will send no more.
//
// Thread safety: see StreamHandler.
// Lifetime: the worker must outlive it.
template <class In, class Out, class Event>
class WorkerStream final : public StreamHandler<In> {
 public:
  // Turns a message into an event; `first` tells whether it must open the
  // stream (else it must not). An error ends the stream.
  using Parse =
      std::function<absl::StatusOr<Event>(const In& message, bool first)>;

  // `watch` may be null: a peer that is silent is waited for.
  WorkerStream(StreamWorker<Event>* worker,
               std::shared_ptr<ServerSender<Out>> sender,
               Parse parse,
               StreamWatch* watch = nullptr)
      : worker_(worker), sender_(std::move(sender)), parse_(std::move(parse)) {
    if (watch == nullptr) return;
    watched_ = watch->Add([sender = sender_](absl::Status status) {
      sender->Cancel(std::move(status));
    });
  }

  void OnMessage(In message) override {
    if (failed_) return;
    const int64_t num_before = num_received_++;
    if (watched_ != nullptr) {
      watched_->OnHeard();
      if (message.has_open()) {
        watched_->LimitTo(absl::Milliseconds(message.open().max_silence_ms()));
      }
    }
    if (message.has_check()) return OnCheck(message.check(), num_before);
    const bool first = stream_ == Worker::kNone;
    absl::StatusOr<Event> event = parse_(message, first);
    if (!event.ok()) return Fail(event.status());
    if (first) {
      stream_ = worker_->Open();
      if (stream_ == Worker::kNone) return Fail(WhyNotOpened());
    }
    Post(*std::move(event), message.SpaceUsedLong());
  }

  bool OnPeerDone() override {
    if (failed_ || stream_ == Worker::kNone) return true;
    Post(Event(), 0);
    return false;
  }

  void OnClosed(absl::Status /*status*/) override {
    if (stream_ != Worker::kNone) worker_->Close(stream_);
  }

 private:
  using Worker = StreamWorker<Event>;

  template <class Check>
  void OnCheck(const Check& check, int64_t num_before) {
    if (check.num_sent() != num_before) {
      return Fail(absl::AbortedError(absl::StrCat("messages were lost: ",
                                                  check.num_sent(),
                                                  " were sent, ",
                                                  num_before,
                                                  " have come")));
    }
    sender_->SendNumbered([](int64_t num_sent) {
      Out answer;
      answer.mutable_check()->set_num_sent(num_sent);
      return answer;
    });
  }

  void Post(Event event, size_t num_bytes) {
    switch (worker_->Post(stream_, std::move(event), num_bytes)) {
      case Worker::PostResult::kPosted:
      case Worker::PostResult::kClosed:
        // Closed: whoever closed it finishes the stream.
        return;
      case Worker::PostResult::kFull:
        return Fail(absl::ResourceExhaustedError(
            "too many messages of this stream wait to be handled"));
      case Worker::PostResult::kStopped:
        return Fail(DrainingError("shutting down"));
    }
  }

  absl::Status WhyNotOpened() const {
    if (worker_->draining()) return DrainingError("the node is draining");
    return absl::ResourceExhaustedError(
        absl::StrCat("max_num_sequences: ",
                     worker_->max_streams(),
                     " are open; retry when one has ended"));
  }

  void Fail(absl::Status status) {
    failed_ = true;
    if (stream_ != Worker::kNone) worker_->Close(stream_);
    sender_->Finish(std::move(status));
  }

  Worker* const worker_;
  // Shared with the worker's client, which sends.
  const std::shared_ptr<ServerSender<Out>> sender_;
  const Parse parse_;
  // Null if it is not watched.
  std::shared_ptr<StreamWatch::Watched> watched_;
  int64_t num_received_ = 0;
  typename Worker::StreamId stream_ = Worker::kNone;
  bool failed_ = false;
};

}  // namespace specwire
