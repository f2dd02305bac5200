// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/http_server.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/thread_name.h"
#include "httplib.h"

namespace specwire {
namespace {

// How long an idle connection keeps one of the threads, and so at most about
// how long Stop() takes.
constexpr time_t kKeepAliveSeconds = 1;

HttpRequest FromLibrary(const httplib::Request& request) {
  HttpRequest result;
  result.method = request.method;
  result.path = request.path;
  for (const auto& [name, value] : request.params) result.query[name] = value;
  for (const auto& [name, value] : request.headers) {
    result.headers[absl::AsciiStrToLower(name)] = value;
  }
  result.body = request.body;
  return result;
}

// The library takes regular expressions; a path stands for itself.
std::string QuotedPattern(const std::string& path) {
  std::string pattern;
  for (const char c : path) {
    if (std::strchr("\\^$.|?*+()[]{}", c) != nullptr) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace

struct HttpServer::Impl {
  HttpServerOptions options;
  httplib::Server server;
  HostPort address;
  std::thread thread;
  Mutex mutex;
  CondVar changed;
  bool running ABSL_GUARDED_BY(mutex) = false;
  bool stopped ABSL_GUARDED_BY(mutex) = false;

  void Configure();
};

void HttpServer::Impl::Configure() {
  const auto timeout = absl::ToChronoMilliseconds(options.timeout);
  server.set_read_timeout(timeout);
  server.set_write_timeout(timeout);
  server.set_keep_alive_timeout(kKeepAliveSeconds);
  server.set_payload_max_length(options.max_body_bytes);
  server.set_tcp_nodelay(true);
  // The library's default lets two servers share a port in silence.
  server.set_socket_options([](socket_t sock) {
    const int on = 1;
    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  });
  // Called when the server has begun to run: before that its stop() does
  // nothing.
  server.new_task_queue = [this]() -> httplib::TaskQueue* {
    MutexLock lock(&mutex);
    running = true;
    changed.NotifyAll();
    return new httplib::ThreadPool(
        static_cast<size_t>(std::max(options.num_threads, 1)));
  };
}

HttpServer::HttpServer(HttpServerOptions options)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
  impl_->Configure();
}

HttpServer::~HttpServer() { Stop(); }

void HttpServer::Handle(const std::string& method,
                        const std::string& path,
                        Handler handler) {
  auto adapter = [handler = std::move(handler)](const httplib::Request& request,
                                                httplib::Response& response) {
    HttpResponse answer = handler(FromLibrary(request));
    response.status = answer.status;
    response.set_content(std::move(answer.body), answer.content_type);
  };
  if (method == "POST") {
    impl_->server.Post(QuotedPattern(path), std::move(adapter));
  } else {
    impl_->server.Get(QuotedPattern(path), std::move(adapter));
  }
}

void HttpServer::Handle(const std::string& path, Handler handler) {
  Handle("GET", path, std::move(handler));
}

absl::Status HttpServer::Start() {
  SPECWIRE_ASSIGN_OR_RETURN(impl_->address,
                            ParseHostPort(impl_->options.listen, "listen"));
  HostPort& address = impl_->address;
  // The library does not tell why it cannot listen.
  SPECWIRE_RETURN_IF_ERROR(CheckCanListen(address));
  bool bound = false;
  if (address.port == 0) {
    address.port = impl_->server.bind_to_any_port(address.host);
    bound = address.port > 0;
  } else {
    bound = impl_->server.bind_to_port(address.host, address.port);
  }
  if (!bound) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", impl_->options.listen));
  }
  impl_->thread = std::thread([impl = impl_.get()] {
    SetThreadName("http");
    impl->server.listen_after_bind();
  });
  MutexLock lock(&impl_->mutex);
  while (!impl_->running) impl_->changed.Wait(&impl_->mutex);
  SPECWIRE_LOG(Info, "serving HTTP on ", address.ToString());
  return absl::OkStatus();
}

int HttpServer::port() const { return impl_->address.port; }

std::string HttpServer::address() const { return impl_->address.ToString(); }

void HttpServer::Stop() {
  {
    MutexLock lock(&impl_->mutex);
    if (!impl_->running || impl_->stopped) return;
    impl_->stopped = true;
  }
  impl_->server.stop();
  impl_->thread.join();
}

void AddMetricsRoutes(HttpServer* server,
                      const MetricsRegistry* registry,
                      std::function<HealthReport()> health) {
  server->Handle("/metrics", [registry](const HttpRequest&) {
    HttpResponse response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = registry->Expose();
    return response;
  });
  server->Handle("/health", [health = std::move(health)](const HttpRequest&) {
    const HealthReport report = health();
    HttpResponse response;
    response.status = report.healthy ? 200 : 503;
    response.content_type = "application/json";
    response.body = report.json;
    return response;
  });
}

}  // namespace specwire
