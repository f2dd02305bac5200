// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/byte_budget.h"
#include "common/http/client_watch.h"
#include "common/http/heap_trimmer.h"
#include "common/http/http_connection.h"
#include "common/http/http_message.h"
#include "common/http/http_server.h"
#include "httplib.h"

namespace specwire {

// What the connections of a server share.
struct HttpContext {
  explicit HttpContext(HttpServerOptions wanted)
      : options(std::move(wanted)), bodies(options.max_bodies_bytes) {}

  const HttpServerOptions options;
  std::vector<HttpRoute> routes;
  ClientWatch watch;
  // Requests to slow routes.
  std::atomic<int> num_slow = 0;
  // What is held of bodies.
  ByteBudget bodies;
  HeapTrimmer trimmer;
};

// A whole answer, for connections on which no request has been understood: it
// ends them.
std::string RawAnswer(const HttpResponse& answer);
// What is told to those for whom there is no room.
HttpResponse NoRoom();

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

  // Has the next request be the last, which must come within the time and is
  // told NoRoom unless its route is always answered.
  void ServeOnlyOne(absl::Duration limit);
  // Reads a request and answers it. False if the connection is to end.
  bool Next();
  // What is streamed ends soon.
  void EndStreams();
  // The client has been told something.
  bool answered() const { return answered_; }

  std::unique_ptr<Watch> OnGone(std::function<void()> on_gone) override;
  bool has_certificate() const override {
    return connection_->has_certificate();
  }
  const std::vector<std::string>& certificate_names() const override {
    return connection_->certificate_names();
  }
  std::string peer() const override { return connection_->peer(); }

 private:
  // What has been read of a body, and why there is no more.
  struct Body {
    std::string bytes;
    ByteBudget::Lease lease;
    bool too_long = false;
    bool no_room = false;
  };

  // The head has been read, and nothing of the body: chooses the route, or a
  // refusal.
  void Begin(httplib::Request* request);
  // Puts the headers as they were sent in place of what the library makes of
  // them. False if they are malformed.
  bool TakeHeaders(httplib::Request* request);
  // The route; null, and a refusal, if there is none.
  const HttpRoute* FindRoute(const httplib::Request& request);
  std::optional<HttpResponse> CheckBody(const httplib::Request& request);
  void ReadAndAnswer(const httplib::Request& request,
                     httplib::Response* response,
                     const httplib::ContentReader& reader);
  // Takes a part of a body; false if it is too much.
  bool TakePart(absl::string_view part, Body* body);
  // Why a body could not be read.
  HttpResponse BodyError(const Body& body) const;
  // The whole request has been read.
  void Answer(const httplib::Request& request,
              Body body,
              httplib::Response* response);
  HttpResponse Handle(const httplib::Request& request, Body body);
  // Whoever looks for something near a path.
  std::string NothingAt(const std::string& path) const;
  void Fill(HttpResponse answer, httplib::Response* response);
  // Gives the library's own errors a body.
  void FillError(httplib::Response* response);

  HttpContext* const context_;
  HttpConnection* const connection_;
  const std::function<void()> on_answer_;

  bool answered_ = false;
  bool only_one_ = false;
  absl::Duration head_timeout_;

  // Of the request at hand.
  std::string head_;
  // Of the request line, in place of the header; false: it is malformed.
  std::optional<std::string> target_host_;
  bool target_ok_ = true;
  size_t body_bytes_ = 0;
  bool begun_ = false;
  bool close_ = false;
  bool counted_slow_ = false;
  bool http_1_0_ = false;
  const HttpRoute* route_ = nullptr;
  std::optional<HttpResponse> refusal_;
};

}  // namespace specwire
