// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/http/http_message.h"
#include "common/rpc/tls_files.h"

namespace specwire {

struct HttpServerOptions {
  // HOST:PORT; port 0 takes a free one.
  std::string listen = "127.0.0.1:0";
  // Each has a thread. When there are so many, the one that has been waiting
  // longest for its next request makes room, or else the one that has taken
  // nothing of its answer for longest. If all are being answered, those that
  // have been end, and a new one gets an answer of a route for which there is
  // room always (HttpRoute::always), or 503, and is closed.
  int max_connections = 64;
  // Requests to slow routes at once, so that the others always have room; one
  // more is told 503.
  int max_slow_requests = 48;
  // For a connection to begin, for a request's head to arrive, and for a client
  // to take some of what is written to it.
  absl::Duration timeout = absl::Seconds(10);
  // For a whole body to arrive.
  absl::Duration body_timeout = absl::Seconds(60);
  // For the next request on a connection.
  absl::Duration idle_timeout = absl::Seconds(15);
  // Request line and headers together.
  size_t max_head_bytes = 16 << 10;
  size_t max_body_bytes = 8 << 20;
  // What all bodies may hold together, save kSmallBodyBytes of each: a request
  // that would need more is told 503.
  size_t max_bodies_bytes = 128 << 20;
  // None: without TLS.
  TlsFiles tls = {};
};

// So much of a body counts for nothing: large ones do not keep small ones out.
inline constexpr size_t kSmallBodyBytes = 64 << 10;

// Requests of one method to one path.
struct HttpRoute {
  using Handler = std::function<HttpResponse(HttpRequest&)>;

  // "GET" (HEAD is answered too) or "POST", which takes application/json and
  // nothing else: no page of another site can send that unasked.
  std::string method = "GET";
  // Stands for itself (no patterns).
  std::string path;
  // Everything that begins with `path`, unless another route fits better.
  bool prefix = false;
  // May take long.
  bool slow = false;
  // Answered, quickly, also when all connections are taken: a few more are let
  // in for a request of these.
  bool always = false;
  // Asked when the headers are there, before anything of the body is read: an
  // answer refuses the request. None: all are let in.
  std::function<std::optional<HttpResponse>(const HttpRequest&)> admit =
      nullptr;
  Handler handler;
};

// A small HTTP/1.1 server with bounds on everything that a client decides.
// Answers are whole or streamed. It sends no CORS headers: no other site's page
// may read its answers.
//
// The library parses; connections, time limits and bounds are our own, because
// it bounds neither connections, heads, chunked bodies nor the time that any of
// them takes.
//
// Thread safety: Handle before Listen, from one thread; the rest from any.
// Handlers run on connections' threads, several at once.
// Lifetime: the destructor stops it.
class HttpServer {
 public:
  using Handler = HttpRoute::Handler;

  explicit HttpServer(HttpServerOptions options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // REQUIRES: before Listen.
  void Handle(HttpRoute route);
  // GET of one path.
  void Handle(const std::string& path, Handler handler);

  // Listens; connections wait until Serve. UNAVAILABLE "cannot listen on
  // ADDRESS: ..." if it is taken; INVALID_ARGUMENT if it is malformed, or the
  // files of TLS are wrong. REQUIRES: called once.
  absl::Status Listen();
  // REQUIRES: Listen() succeeded; called once.
  void Serve();
  // Both.
  absl::Status Start();
  // The port that it listens on, and HOST:PORT. REQUIRES: Listen() succeeded.
  int port() const;
  std::string address() const;

  // Takes no more requests, tells the handlers that run that their clients have
  // gone, and waits for them. No handler runs when it has returned.
  void Stop();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace specwire
