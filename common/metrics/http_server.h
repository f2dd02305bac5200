// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics/metrics.h"

namespace specwire {

struct HttpRequest {
  std::string method;
  // Without the query.
  std::string path;
  // Decoded parameters of the query; the last of a name counts.
  std::map<std::string, std::string> query;
  // Names in lower case; the last of a name counts.
  std::map<std::string, std::string> headers;
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

struct HttpServerOptions {
  // HOST:PORT; port 0 takes a free one.
  std::string listen = "127.0.0.1:0";
  // Requests that are served at once; more wait.
  int num_threads = 4;
  // For one read or write on a connection, and for an idle one.
  absl::Duration timeout = absl::Seconds(5);
  size_t max_body_bytes = 8 << 20;
};

// A small HTTP/1.1 server: exact paths, whole answers.
//
// Thread safety: Handle before Start, from one thread; the rest from any.
// Handlers run on the server's threads, several at once.
// Lifetime: the destructor stops it.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  explicit HttpServer(HttpServerOptions options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Serves a path, which stands for itself (no patterns). `method` is "GET"
  // (HEAD is answered too) or "POST". REQUIRES: before Start.
  void Handle(const std::string& method,
              const std::string& path,
              Handler handler);
  // GET.
  void Handle(const std::string& path, Handler handler);

  // Listens and serves. UNAVAILABLE "cannot listen on ADDRESS: ..." if it is
  // taken; INVALID_ARGUMENT if it is malformed. REQUIRES: called once.
  absl::Status Start();
  // The port that it listens on, and HOST:PORT. REQUIRES: Start() succeeded.
  int port() const;
  std::string address() const;

  // Takes no more requests and waits for the running ones (at most about the
  // timeout). No handler runs when it has returned.
  void Stop();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// What GET /health answers: 200 or 503, with a JSON object.
struct HealthReport {
  bool healthy = false;
  std::string json = "{}";
};

// Adds GET /metrics and GET /health. Both arguments must outlive the server.
// REQUIRES: before Start.
void AddMetricsRoutes(HttpServer* server,
                      const MetricsRegistry* registry,
                      std::function<HealthReport()> health);

}  // namespace specwire
