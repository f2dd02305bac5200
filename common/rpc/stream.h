// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

// Long-lived streams over gRPC's callback API: what their users see. The
// machinery is in server_stream.h and client_stream.h.
//
// A *handler* is told what happens on a stream; a *sender* is the handle with
// which anybody sends on it and ends it. Both are held by shared_ptr, because a
// stream's last events and its users' last calls may cross.
//
// Order of a handler's calls: OnMessage calls never overlap one another;
// OnWritten may come while OnMessage runs; OnClosed comes exactly once, after
// all others have returned, and then the stream lets go of the handler. The
// calls are made on gRPC's threads without any lock: they must not block, and
// are expected to do no more than post to a strand or a bounded queue.

namespace specwire {

// Told about a stream on which we only send.
class WriterHandler {
 public:
  virtual ~WriterHandler() = default;
  // Flow control has taken one more message; `num_queued` still wait for it. A
  // message counts as queued until then, so a peer that does not read shows as
  // a number that does not fall.
  virtual void OnWritten(size_t /*num_queued*/) {}
  // The stream has ended. On a client `status` is the server's, or why the
  // stream was lost; after Cancel() it is CANCELLED. On a server it is the
  // status that was given to Finish or Cancel; CANCELLED if the peer cancelled
  // or vanished first.
  virtual void OnClosed(absl::Status status) = 0;
};

// Told about a stream in both directions.
template <class In>
class StreamHandler : public WriterHandler {
 public:
  // A message has come. The next is read only after this has returned, so
  // returning late holds the peer back. A message that was on its way may still
  // come after Finish or Cancel.
  virtual void OnMessage(In message) = 0;
  // Server side: the peer will send no more. If it returns true the stream is
  // finished with OK once what is queued has gone out; if it returns false
  // somebody must call Finish.
  virtual bool OnPeerDone() { return true; }
};

// Sends on a stream.
//
// Thread safety: any thread, handlers' calls included.
// Lifetime: usable after the stream has ended, when it does nothing.
template <class Out>
class StreamSender {
 public:
  virtual ~StreamSender() = default;
  // Queues a message; order is kept. Returns false, and drops it, if the stream
  // has ended or is ending. If the message does not fit the queue the stream is
  // cancelled: Send returns false, what is queued is dropped, and OnClosed
  // tells RESOURCE_EXHAUSTED (the peer may see CANCELLED).
  virtual bool Send(Out message) = 0;
  // Messages that flow control has not taken yet.
  virtual size_t num_queued() const = 0;
};

// The server's side of a stream.
template <class Out>
class ServerSender : public StreamSender<Out> {
 public:
  // Sends the message that `make` makes of the number of messages that the
  // stream has accepted before it. `make` must not use the stream.
  virtual bool SendNumbered(
      absl::FunctionRef<Out(int64_t num_before)> make) = 0;
  // Ends the stream with `status` once what is queued has gone out; nothing is
  // accepted after it. Only the first Finish or Cancel counts.
  virtual void Finish(absl::Status status) = 0;
  // Ends the stream now: what is queued is dropped. OnClosed tells `status`;
  // the peer is told it too if no message is in its way, else it sees
  // CANCELLED. Also speeds up a Finish that waits for a slow peer.
  virtual void Cancel(absl::Status status) = 0;
};

// The client's side of a stream.
template <class Out>
class ClientSender : public StreamSender<Out> {
 public:
  // Tells the server, after what is queued, that no more will be sent. Messages
  // may still come.
  virtual void WritesDone() = 0;
  // Ends the stream now. OnClosed follows, with CANCELLED unless the stream had
  // ended first.
  virtual void Cancel() = 0;
};

}  // namespace specwire
