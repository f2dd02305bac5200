// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/byte_budget.h"

namespace specwire {

// What a page of ours may load: nothing that is not this server's own.
inline constexpr char kContentSecurityPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
    "'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

// The client of a request that is being answered.
//
// Thread safety: any thread.
// Lifetime: that of the handler's call, and of the answer's stream.
class HttpClient {
 public:
  // While it lives the callback may be called; its destructor waits for one
  // that runs.
  class Watch {
   public:
    virtual ~Watch() = default;
  };

  virtual ~HttpClient() = default;

  // Has `on_gone` called at most once, on another thread, when the client has
  // closed the connection, or its side of it, or the server stops. It must be
  // quick and must not touch any Watch.
  virtual std::unique_ptr<Watch> OnGone(std::function<void()> on_gone) = 0;

  // It has shown a certificate of the roots; always false without TLS.
  virtual bool has_certificate() const = 0;
  // The certificate's DNS names.
  virtual const std::vector<std::string>& certificate_names() const = 0;
  // ADDRESS:PORT of the connection's other end; empty if it is not known.
  virtual std::string peer() const = 0;
};

struct HttpRequest {
  std::string method;
  // Without the query.
  std::string path;
  // Decoded parameters of the query; the last of a name counts.
  std::map<std::string, std::string> query;
  // Names in lower case; the last of a name counts.
  std::map<std::string, std::string> headers;
  std::string body;
  // Of what the bodies of all requests may hold.
  ByteBudget::Lease body_lease;
  // Never null.
  HttpClient* client = nullptr;

  // Frees the body, for handlers that go on for long without it.
  void DropBody() {
    std::string().swap(body);
    body_lease.Release();
  }

  // The header's value, empty if there is none. `name` in lower case.
  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

// The body of an answer that is sent while it is made.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  // Sends some of it at once. False if the client has gone: no more will
  // arrive. Waits for a client that reads slowly, up to the server's timeout.
  virtual bool Write(absl::string_view data) = 0;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  // Further headers.
  std::vector<std::pair<std::string, std::string>> headers;
  // Sends the body in place of `body`; called once, on the handler's thread,
  // behind the handler, and not for HEAD.
  std::function<void(HttpStream* out)> stream;
};

// An error in the shape of OpenAI's: {"error": {message, type, param, code}}.
// `param` and `code` are null where empty. What steers terminals, and what is
// not UTF-8, stands in them as an escape.
HttpResponse HttpError(int status,
                       absl::string_view message,
                       absl::string_view param = "",
                       absl::string_view code = "");

}  // namespace specwire
