// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_server.h"

#include <algorithm>
#include <list>
#include <system_error>
#include <thread>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/thread_name.h"
#include "common/http/http_connection.h"
#include "common/http/http_exchange.h"
#include "common/http/tls_context.h"
#include "common/rpc/listener.h"

namespace specwire {
namespace {

// Connections that have been told to make room and are not gone yet: so many
// more threads than there are places.
constexpr int kMostLeaving = 64;
// Beyond max_connections, for one request each of a route that is always
// answered, and how long that may take to come, and to be taken.
constexpr int kSparePlaces = 16;
constexpr absl::Duration kSpareTime = absl::Seconds(2);
// So long after one found no place, connections end with their answer.
constexpr absl::Duration kCrowded = absl::Seconds(1);
// Descriptors of the whole process, which has other sockets too: connections
// are bounded by their own count long before.
constexpr int kMaxDescriptors = 16 << 10;
// Whoever has taken nothing of an answer for so long may be no more than slow,
// but goes before others are turned away.
constexpr absl::Duration kStalled = absl::Milliseconds(250);

}  // namespace

class HttpServer::Impl {
 public:
  explicit Impl(HttpServerOptions options) : context_(std::move(options)) {}
  ~Impl() { Stop(); }

  HttpContext* context() { return &context_; }
  absl::Status Listen();
  void Serve();
  const HostPort& address() const { return address_; }
  void Stop();

 private:
  // A connection and its thread.
  struct Worker {
    std::thread thread;
    // -1 once the connection is about to be closed.
    int fd = -1;
    // Null until the thread has begun, and once the connection is about to be
    // closed.
    HttpConnection* connection = nullptr;
    HttpExchange* exchange = nullptr;
    // It waits for a request, since then.
    bool idle = true;
    absl::Time idle_since;
    // It was told to make room.
    bool leaving = false;
    // It has a spare place.
    bool spare = false;
  };
  using Workers = std::list<Worker>;

  void OnConnection(int fd);
  // Whether there is room for a connection; makes some if need be.
  bool MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The same for a spare place.
  bool MakeSpareRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(Workers::iterator worker, int fd);
  void ServeConnection(Workers::iterator worker, HttpConnection* connection);
  void ServeSpare(Workers::iterator worker, HttpConnection* connection);
  void SetIdle(Workers::iterator worker, bool idle);
  // One found no place just now.
  bool Crowded();
  // Joins threads that have ended.
  void Reap();

  HttpContext context_;
  HostPort address_;
  std::unique_ptr<TlsContext> tls_;
  std::unique_ptr<Listener> listener_;
  const SteadyClock clock_;
  const std::string full_ = RawAnswer(NoRoom());

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time last_without_place_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // In the order of their beginning; those whose threads have ended.
  Workers workers_ ABSL_GUARDED_BY(mutex_);
  Workers ended_ ABSL_GUARDED_BY(mutex_);
};

absl::Status HttpServer::Impl::Listen() {
  const HttpServerOptions& options = context_.options;
  SPECWIRE_ASSIGN_OR_RETURN(address_, ParseHostPort(options.listen, "listen"));
  if (options.tls.enabled()) {
    SPECWIRE_ASSIGN_OR_RETURN(tls_, TlsContext::Load(options.tls));
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      listener_,
      Listener::Bind({address_, kMaxDescriptors, options.body_timeout}));
  address_.port = listener_->port();
  return absl::OkStatus();
}

void HttpServer::Impl::Serve() {
  listener_->Start([this](int /*listening_fd*/, int fd) { OnConnection(fd); });
  const HttpServerOptions& options = context_.options;
  SPECWIRE_LOG(Info,
               "serving ",
               tls_ == nullptr ? "HTTP" : "HTTPS",
               " on ",
               address_.ToString(),
               ": ",
               options.max_connections,
               " connections, ",
               options.max_slow_requests,
               " slow requests, head ",
               options.max_head_bytes,
               " B, body ",
               options.max_body_bytes,
               " B");
}

bool HttpServer::Impl::MakeRoom() {
  Worker* idle = nullptr;
  Worker* stalled = nullptr;
  absl::Duration longest = kStalled;
  int num = 0;
  int num_leaving = 0;
  for (Worker& worker : workers_) {
    if (worker.spare) continue;
    ++num;
    num_leaving += worker.leaving ? 1 : 0;
    if (worker.leaving || worker.connection == nullptr) continue;
    const absl::Duration wait = worker.connection->write_wait();
    if (worker.idle) {
      if (idle == nullptr || worker.idle_since < idle->idle_since) {
        idle = &worker;
      }
    } else if (wait >= longest) {
      stalled = &worker;
      longest = wait;
    }
  }
  if (num < context_.options.max_connections) return true;
  if (num_leaving >= kMostLeaving) return false;
  if (idle != nullptr) {
    idle->leaving = true;
    idle->connection->Evict();
  } else if (stalled != nullptr) {
    stalled->leaving = true;
    stalled->connection->Hangup();
  }
  return idle != nullptr || stalled != nullptr;
}

bool HttpServer::Impl::MakeSpareRoom() {
  Worker* oldest = nullptr;
  int num = 0;
  int num_leaving = 0;
  for (Worker& worker : workers_) {
    if (!worker.spare) continue;
    ++num;
    num_leaving += worker.leaving ? 1 : 0;
    if (worker.leaving || worker.fd < 0) continue;
    if (oldest == nullptr) oldest = &worker;
  }
  if (num - num_leaving < kSparePlaces) return true;
  if (num_leaving >= kMostLeaving || oldest == nullptr) return false;
  oldest->leaving = true;
  // Its thread may not have begun.
  shutdown(oldest->fd, SHUT_RDWR);
  return true;
}

void HttpServer::Impl::OnConnection(int fd) {
  Reap();
  MutexLock lock(&mutex_);
  const bool has_place = !stopping_ && MakeRoom();
  if (!has_place) last_without_place_ = clock_.Now();
  if (!has_place && (stopping_ || !MakeSpareRoom())) {
    if (tls_ == nullptr) {
      // The socket is new: there is room for so little.
      send(fd, full_.data(), full_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      shutdown(fd, SHUT_WR);
      DrainSocket(fd);
    }
    close(fd);
    return;
  }
  const auto worker = workers_.emplace(workers_.end());
  worker->fd = fd;
  worker->idle_since = clock_.Now();
  worker->spare = !has_place;
  // The system may be out of threads; nothing else of the library tells so.
  try {
    worker->thread = std::thread([this, worker, fd] { Run(worker, fd); });
  } catch (const std::system_error& error) {
    SPECWIRE_LOG(Warning, "HTTP: no thread for a connection: ", error.what());
    workers_.erase(worker);
    close(fd);
  }
}

void HttpServer::Impl::Run(Workers::iterator worker, int fd) {
  SetThreadName("http");
  {
    HttpConnection connection(fd, tls_ == nullptr ? nullptr : tls_->Current());
    HttpExchange exchange(
        &context_, &connection, [this, worker] { SetIdle(worker, false); });
    bool stopping = false;
    bool spare = false;
    {
      MutexLock lock(&mutex_);
      spare = worker->spare;
      worker->connection = &connection;
      worker->exchange = &exchange;
      stopping = stopping_;
    }
    if (spare && !stopping) {
      ServeSpare(worker, &connection);
    } else if (!stopping) {
      ServeConnection(worker, &connection);
    }
    MutexLock lock(&mutex_);
    worker->fd = -1;
    worker->connection = nullptr;
    worker->exchange = nullptr;
  }
  MutexLock lock(&mutex_);
  ended_.splice(ended_.end(), workers_, worker);
  changed_.NotifyAll();
}

void HttpServer::Impl::ServeConnection(Workers::iterator worker,
                                       HttpConnection* connection) {
  const HttpServerOptions& options = context_.options;
  connection->set_write_timeout(options.timeout);
  if (!connection->Handshake(options.timeout)) return;
  absl::Duration patience = options.timeout;
  bool crowded = false;
  while (!crowded && connection->WaitForData(patience) &&
         worker->exchange->Next()) {
    SetIdle(worker, true);
    patience = options.idle_timeout;
    crowded = Crowded();
  }
  SetIdle(worker, true);
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
  }
  if (!connection->evicted() && !crowded) return connection->Linger();
  // Others wait for its place.
  if (!worker->exchange->answered()) connection->WriteNow(full_);
  connection->Drain();
}

void HttpServer::Impl::ServeSpare(Workers::iterator worker,
                                  HttpConnection* connection) {
  connection->set_write_timeout(kSpareTime);
  worker->exchange->ServeOnlyOne(kSpareTime);
  if (!connection->Handshake(kSpareTime)) return;
  worker->exchange->Next();
  if (!worker->exchange->answered()) connection->WriteNow(full_);
  connection->Drain();
}

bool HttpServer::Impl::Crowded() {
  MutexLock lock(&mutex_);
  return clock_.Now() - last_without_place_ < kCrowded;
}

void HttpServer::Impl::SetIdle(Workers::iterator worker, bool idle) {
  MutexLock lock(&mutex_);
  worker->idle = idle;
  worker->idle_since = clock_.Now();
}

void HttpServer::Impl::Reap() {
  Workers ended;
  {
    MutexLock lock(&mutex_);
    ended.swap(ended_);
  }
  for (Worker& worker : ended) worker.thread.join();
}

void HttpServer::Impl::Stop() {
  if (listener_ == nullptr) return;
  listener_->Stop();
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    for (Worker& worker : workers_) {
      if (worker.exchange != nullptr) worker.exchange->EndStreams();
      if (worker.idle && worker.connection != nullptr) {
        worker.connection->Hangup();
      }
    }
  }
  context_.watch.Stop();
  {
    MutexLock lock(&mutex_);
    const absl::Time deadline = clock_.Now() + context_.options.timeout;
    while (!workers_.empty()) {
      const absl::Duration left = deadline - clock_.Now();
      if (left > absl::ZeroDuration()) {
        changed_.WaitFor(&mutex_, left);
        continue;
      }
      for (Worker& worker : workers_) {
        if (worker.connection != nullptr) worker.connection->Hangup();
      }
      changed_.Wait(&mutex_);
    }
  }
  Reap();
}

HttpServer::HttpServer(HttpServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}

HttpServer::~HttpServer() = default;

void HttpServer::Handle(HttpRoute route) {
  impl_->context()->routes.push_back(std::move(route));
}

void HttpServer::Handle(const std::string& path, Handler handler) {
  HttpRoute route;
  route.path = path;
  route.handler = std::move(handler);
  Handle(std::move(route));
}

absl::Status HttpServer::Listen() { return impl_->Listen(); }

void HttpServer::Serve() { impl_->Serve(); }

absl::Status HttpServer::Start() {
  SPECWIRE_RETURN_IF_ERROR(Listen());
  Serve();
  return absl::OkStatus();
}

int HttpServer::port() const { return impl_->address().port; }

std::string HttpServer::address() const { return impl_->address().ToString(); }

void HttpServer::Stop() { impl_->Stop(); }

}  // namespace specwire
