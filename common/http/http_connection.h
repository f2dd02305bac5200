// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "httplib.h"
#include "openssl/ssl.h"

namespace specwire {

// Reads what has come to a socket, up to a bound, and throws it away: one that
// is closed with unread data resets the connection, and the peer may lose what
// it was told.
void DrainSocket(int fd);

// One connection, with or without TLS, as the HTTP library reads and writes it.
// The library bounds neither how many bytes a request's head or a chunked body
// has nor how long they take to come: this does.
//
// Thread safety: one thread; Hangup, Evict, evicted and write_wait from any.
// Lifetime: closes the socket.
class HttpConnection final : public httplib::Stream {
 public:
  // `fd` does not block. A null context is a connection without TLS.
  HttpConnection(int fd, std::shared_ptr<SSL_CTX> context);
  ~HttpConnection() override;
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // True if TLS is agreed on within the time; at once without TLS.
  bool Handshake(absl::Duration limit);
  // True if something can be read within the time.
  bool WaitForData(absl::Duration limit);
  // At most so many bytes, by then, are read from now on; what is beyond fails.
  void LimitReads(size_t bytes, absl::Duration limit);
  enum class Head { kRead, kTooLong, kEnd };
  // Takes what comes up to an empty line and with it, at most so many bytes
  // within the time.
  Head ReadHead(size_t max_bytes, absl::Duration limit, std::string* head);
  // Has `bytes` read before what comes.
  void Unread(const std::string& bytes);
  // A read has failed because of the bytes.
  bool over_limit() const { return over_limit_; }
  // What was read last ends with an empty line.
  bool at_empty_line() const;
  // A peer that takes nothing for so long fails a write.
  void set_write_timeout(absl::Duration limit) { write_timeout_ = limit; }
  // How long a write has been waiting for the peer to take something.
  absl::Duration write_wait() const;
  // Writes what fits at once.
  void WriteNow(absl::string_view data);
  // Ends reads and writes, those that wait too.
  void Hangup();
  // Ends reads, to make room for others; what is known by then may be told.
  void Evict();
  bool evicted() const { return evicted_; }
  // Says that nothing more comes, and reads what is there already.
  void Drain();
  // Says that nothing more comes, and reads what the peer still sends, for a
  // while: a socket that is closed with unread data resets the connection, and
  // the peer may lose the answer.
  void Linger();

  bool has_certificate() const { return has_certificate_; }
  const std::vector<std::string>& certificate_names() const { return names_; }
  int fd() const { return fd_; }
  // ADDRESS:PORT of the other end; empty if it is not known.
  std::string peer() const;

  bool is_readable() const override { return true; }
  bool is_writable() const override { return !broken_; }
  ssize_t read(char* data, size_t size) override;
  ssize_t write(const char* data, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  // Only asked for its size, against a limit of select(), which is not used.
  socket_t socket() const override { return 0; }

 private:
  enum class Direction { kRead, kWrite };

  // Waits until the socket can be read or written, or the deadline.
  bool Wait(Direction direction, absl::Time deadline) const;
  // One try: bytes, 0 at the end, or -1 with what to wait for in `direction`,
  // or -2 for good.
  ssize_t TryRead(char* data, size_t size, Direction* direction);
  ssize_t TryWrite(const char* data, size_t size, Direction* direction);
  int TlsResult(int result, Direction* direction);
  // Reads into the buffer; false at the end, the limit or an error.
  bool Fill();

  const int fd_;
  const SteadyClock clock_;
  // The context outlives the connection, which may be the last to use it.
  const std::shared_ptr<SSL_CTX> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  bool has_certificate_ = false;
  std::vector<std::string> names_;

  std::string buffer_;
  size_t buffer_start_ = 0;
  // The latest bytes that were read.
  std::string last_;
  size_t bytes_left_ = 0;
  absl::Time read_deadline_ = absl::InfinitePast();
  bool over_limit_ = false;
  absl::Duration write_timeout_ = absl::Seconds(5);
  bool broken_ = false;
  std::atomic<bool> evicted_ = false;
  // In nanoseconds; 0: none waits.
  std::atomic<int64_t> write_waits_since_ = 0;
};

}  // namespace specwire
