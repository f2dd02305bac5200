// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/relay_direction.h"

#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/time/time.h"

namespace specwire {

int64_t RelayNowNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

bool RelayDirection::Read(int from, char* buffer) {
  const ssize_t count = recv(from, buffer, kReadBytes, 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  end_read_ = count == 0;
  Admit({0, end_read_, std::vector<char>(buffer, buffer + count)});
  return true;
}

bool RelayDirection::Deliver(int to, int64_t now_ns) {
  while (due_ns() <= now_ns) {
    Piece& head = pieces_.front();
    if (head.is_end) {
      shutdown(to, SHUT_WR);
      done_ = true;
    } else if (!Write(to, head)) {
      return blocked_;
    }
    sent_ = 0;
    held_ -= head.cost();
    pieces_.pop_front();
  }
  return true;
}

void RelayDirection::Admit(Piece piece) {
  const int64_t jitter_ns = absl::ToInt64Nanoseconds(conditions_->jitter);
  const int64_t extra_ns =
      jitter_ns == 0 ? 0
                     : static_cast<int64_t>(
                           random_() % static_cast<uint64_t>(jitter_ns + 1));
  const int64_t due_ns =
      RelayNowNs() + absl::ToInt64Nanoseconds(conditions_->delay) + extra_ns;
  last_due_ns_ = std::max(last_due_ns_, due_ns);
  piece.due_ns = last_due_ns_;
  held_ += piece.cost();
  pieces_.push_back(std::move(piece));
}

bool RelayDirection::Write(int to, const Piece& piece) {
  while (sent_ < piece.bytes.size()) {
    const ssize_t count = send(to,
                               piece.bytes.data() + sent_,
                               piece.bytes.size() - sent_,
                               MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      blocked_ = errno == EAGAIN;
      return false;
    }
    sent_ += static_cast<size_t>(count);
  }
  return true;
}

}  // namespace specwire
