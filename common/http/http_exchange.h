// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/http/client_watch.h"
#include "common/http/http_connection.h"
#include "common/http/http_message.h"
#include "common/http/http_server.h"
#include "httplib.h"

namespace specwire {

// What the connections of a server share.
struct HttpContext {
  HttpServerOptions options;
  std::vector<HttpRoute> routes;
  ClientWatch watch;
  // Requests to slow routes.
  std::atomic<int> num_slow = 0;
};

// The requests of one connection, one behind another: the library's server,
// given our connection in place of a socket of its own, and our routes.
//
// Thread safety: one thread; EndStreams from any.
class HttpExchange final : private httplib::Server, public HttpClient {
 public:
  // `on_answer` is called when a request has been read.
  HttpExchange(HttpContext* context,
               HttpConnection* connection,
               std::function<void()> on_answer);
  ~HttpExchange() override;

  // Reads a request and answers it. False if the connection is to end.
  bool Next();
  // What is streamed ends soon.
  void EndStreams();

  std::unique_ptr<Watch> OnGone(std::function<void()> on_gone) override;
  bool has_certificate() const override {
    return connection_->has_certificate();
  }
  const std::vector<std::string>& certificate_names() const override {
    return connection_->certificate_names();
  }

 private:
  // The head has been read, and nothing of the body: chooses the route, or a
  // refusal.
  void Begin(httplib::Request* request);
  // The route, or why there is none.
  // Puts the headers as they were sent in place of what the library makes of
  // them. False if they are malformed.
  bool TakeHeaders(httplib::Request* request);
  const HttpRoute* FindRoute(const httplib::Request& request);
  std::optional<HttpResponse> CheckBody(const httplib::Request& request);
  void Refuse(httplib::Request* request, HttpResponse refusal);
  // The whole request has been read.
  void Answer(const httplib::Request& request, httplib::Response* response);
  HttpResponse Handle(const httplib::Request& request);
  void Fill(HttpResponse answer, httplib::Response* response);
  // Gives the library's own errors a body.
  void FillError(httplib::Response* response);

  HttpContext* const context_;
  HttpConnection* const connection_;
  const std::function<void()> on_answer_;

  // Of the request at hand.
  bool begun_ = false;
  bool close_ = false;
  bool counted_slow_ = false;
  bool http_1_0_ = false;
  const HttpRoute* route_ = nullptr;
  std::optional<HttpResponse> refusal_;
};

}  // namespace specwire
