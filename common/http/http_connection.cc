// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/http/tls_context.h"

namespace specwire {
namespace {

constexpr size_t kReadBytes = 16 << 10;
constexpr absl::Duration kLingerTime = absl::Seconds(2);
constexpr size_t kLingerBytes = 32 << 20;
constexpr size_t kDrainBytes = 1 << 20;
constexpr char kEmptyLine[] = "\r\n\r\n";
constexpr size_t kEmptyLineBytes = sizeof(kEmptyLine) - 1;

}  // namespace

void DrainSocket(int fd) {
  std::string scratch(kReadBytes, '\0');
  size_t total = 0;
  while (total < kDrainBytes) {
    const ssize_t count =
        recv(fd, scratch.data(), scratch.size(), MSG_DONTWAIT);
    if (count <= 0) break;
    total += static_cast<size_t>(count);
  }
}

HttpConnection::HttpConnection(int fd, std::shared_ptr<SSL_CTX> context)
    : fd_(fd), context_(std::move(context)), ssl_(nullptr, &SSL_free) {
  if (context_ == nullptr) return;
  ssl_.reset(SSL_new(context_.get()));
  if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), fd_) != 1) broken_ = true;
}

HttpConnection::~HttpConnection() {
  if (ssl_ != nullptr && !broken_) {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
  }
  ssl_.reset();
  close(fd_);
}

bool HttpConnection::Wait(Direction direction, absl::Time deadline) const {
  for (;;) {
    const absl::Duration left = deadline - clock_.Now();
    if (left <= absl::ZeroDuration()) return false;
    pollfd poll_fd = {
        fd_,
        static_cast<short>(direction == Direction::kRead ? POLLIN : POLLOUT),
        0};
    const int milliseconds = static_cast<int>(
        std::clamp<int64_t>(absl::ToInt64Milliseconds(left) + 1, 1, 3'600'000));
    const int ready = poll(&poll_fd, 1, milliseconds);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

int HttpConnection::TlsResult(int result, Direction* direction) {
  if (result > 0) return result;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      *direction = Direction::kRead;
      return -1;
    case SSL_ERROR_WANT_WRITE:
      *direction = Direction::kWrite;
      return -1;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    default:
      // No close_notify may follow.
      broken_ = true;
      return -2;
  }
}

ssize_t HttpConnection::TryRead(char* data, size_t size, Direction* direction) {
  if (ssl_ != nullptr) {
    ERR_clear_error();
    return TlsResult(
        SSL_read(ssl_.get(),
                 data,
                 static_cast<int>(std::min<size_t>(size, 1 << 20))),
        direction);
  }
  const ssize_t count = recv(fd_, data, size, 0);
  if (count >= 0) return count;
  *direction = Direction::kRead;
  return errno == EAGAIN || errno == EINTR ? -1 : -2;
}

ssize_t HttpConnection::TryWrite(const char* data,
                                 size_t size,
                                 Direction* direction) {
  if (ssl_ != nullptr) {
    ERR_clear_error();
    return TlsResult(
        SSL_write(ssl_.get(),
                  data,
                  static_cast<int>(std::min<size_t>(size, 1 << 20))),
        direction);
  }
  const ssize_t count = send(fd_, data, size, MSG_NOSIGNAL);
  if (count >= 0) return count;
  *direction = Direction::kWrite;
  return errno == EAGAIN || errno == EINTR ? -1 : -2;
}

bool HttpConnection::Handshake(absl::Duration limit) {
  if (context_ == nullptr) return true;
  if (broken_) return false;
  const absl::Time deadline = clock_.Now() + limit;
  for (;;) {
    ERR_clear_error();
    Direction direction = Direction::kRead;
    const int result = TlsResult(SSL_accept(ssl_.get()), &direction);
    if (result > 0) break;
    if (result != -1 || !Wait(direction, deadline)) {
      broken_ = true;
      return false;
    }
  }
  has_certificate_ = PeerNames(ssl_.get(), &names_);
  return true;
}

bool HttpConnection::WaitForData(absl::Duration limit) {
  if (buffer_start_ < buffer_.size()) return true;
  if (ssl_ != nullptr && SSL_pending(ssl_.get()) > 0) return true;
  return Wait(Direction::kRead, clock_.Now() + limit);
}

void HttpConnection::LimitReads(size_t bytes, absl::Duration limit) {
  bytes_left_ = bytes;
  read_deadline_ = clock_.Now() + limit;
  over_limit_ = false;
}

HttpConnection::Head HttpConnection::ReadHead(size_t max_bytes,
                                              absl::Duration limit,
                                              std::string* head) {
  LimitReads(max_bytes, limit);
  head->clear();
  // Up to where lines have been looked at.
  size_t line = 0;
  for (;;) {
    if (buffer_start_ == buffer_.size() && !Fill()) return Head::kEnd;
    const size_t before = head->size();
    head->append(buffer_, buffer_start_, buffer_.size() - buffer_start_);
    buffer_start_ = buffer_.size();
    for (size_t end = head->find('\n', std::max(line, before));
         end != std::string::npos;
         end = head->find('\n', line)) {
      const size_t length = end - line;
      // An empty first line is no end: it has no request.
      const bool empty =
          line > 0 && (length == 0 || (length == 1 && (*head)[line] == '\r'));
      line = end + 1;
      if (!empty) continue;
      if (line > max_bytes) return Head::kTooLong;
      buffer_start_ -= head->size() - line;
      head->resize(line);
      return Head::kRead;
    }
    if (head->size() > max_bytes) return Head::kTooLong;
  }
}

void HttpConnection::Unread(const std::string& bytes) {
  buffer_.replace(0, buffer_start_, bytes);
  buffer_start_ = 0;
}

bool HttpConnection::Fill() {
  buffer_.resize(kReadBytes);
  buffer_start_ = 0;
  Direction direction = Direction::kRead;
  ssize_t count = 0;
  do {
    count = TryRead(buffer_.data(), buffer_.size(), &direction);
  } while (count == -1 && Wait(direction, read_deadline_));
  buffer_.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return count > 0;
}

ssize_t HttpConnection::read(char* data, size_t size) {
  if (bytes_left_ == 0) {
    over_limit_ = true;
    return -1;
  }
  if (buffer_start_ == buffer_.size() && !Fill()) return -1;
  const size_t count =
      std::min({size, buffer_.size() - buffer_start_, bytes_left_});
  std::memcpy(data, buffer_.data() + buffer_start_, count);
  buffer_start_ += count;
  bytes_left_ -= count;
  last_.append(data + (count - std::min(count, kEmptyLineBytes)),
               std::min(count, kEmptyLineBytes));
  if (last_.size() > kEmptyLineBytes) {
    last_.erase(0, last_.size() - kEmptyLineBytes);
  }
  return static_cast<ssize_t>(count);
}

bool HttpConnection::at_empty_line() const { return last_ == kEmptyLine; }

ssize_t HttpConnection::write(const char* data, size_t size) {
  if (broken_) return -1;
  if (size == 0) return 0;
  const absl::Time deadline = clock_.Now() + write_timeout_;
  Direction direction = Direction::kWrite;
  ssize_t count = 0;
  count = TryWrite(data, size, &direction);
  if (count == -1) {
    write_waits_since_ = absl::ToUnixNanos(clock_.Now());
    while (count == -1 && Wait(direction, deadline)) {
      count = TryWrite(data, size, &direction);
    }
    write_waits_since_ = 0;
  }
  if (count > 0) return count;
  broken_ = true;
  return -1;
}

absl::Duration HttpConnection::write_wait() const {
  const int64_t since = write_waits_since_;
  if (since == 0) return absl::ZeroDuration();
  return clock_.Now() - absl::FromUnixNanos(since);
}

void HttpConnection::WriteNow(absl::string_view data) {
  if (broken_) return;
  Direction direction = Direction::kWrite;
  TryWrite(data.data(), data.size(), &direction);
}

void HttpConnection::Hangup() { shutdown(fd_, SHUT_RDWR); }

void HttpConnection::Evict() {
  evicted_ = true;
  shutdown(fd_, SHUT_RD);
}

void HttpConnection::Drain() {
  shutdown(fd_, SHUT_WR);
  broken_ = true;
  DrainSocket(fd_);
}

void HttpConnection::Linger() {
  if (broken_) return;
  if (ssl_ != nullptr) {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
  }
  shutdown(fd_, SHUT_WR);
  // Whatever it is, TLS or not: it is thrown away.
  const absl::Time deadline = clock_.Now() + kLingerTime;
  std::string scratch(kReadBytes, '\0');
  size_t total = 0;
  while (total < kLingerBytes && Wait(Direction::kRead, deadline)) {
    const ssize_t count = recv(fd_, scratch.data(), scratch.size(), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) break;
    if (count > 0) total += static_cast<size_t>(count);
  }
  // Nothing may be written any more.
  broken_ = true;
}

std::string HttpConnection::peer() const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(fd_, any, &size) != 0) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(any);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
    return absl::StrCat(text, ":", ntohs(v4->sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(any);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
    return absl::StrCat("[", text, "]:", ntohs(v6->sin6_port));
  }
  return "";
}

void HttpConnection::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void HttpConnection::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

}  // namespace specwire
