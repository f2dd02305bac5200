// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/relay_direction.h"

#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <limits>
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
  if (end_read_) {
    Admit({.kind = Kind::kEnd});
  } else {
    Admit({.bytes = std::vector<char>(buffer, buffer + count)});
  }
  return true;
}

bool RelayDirection::Deliver(int to, int64_t now_ns) {
  while (due_ns() <= now_ns) {
    Piece& head = pieces_.front();
    if (head.kind == Kind::kCut) return false;
    if (head.kind == Kind::kEnd) {
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

void RelayDirection::Settle() {
  if (loses() || conditions_->stalled) return;
  if (!closed_ && conditions_->ended) Push({.kind = Kind::kEnd});
  if (!cut_ && conditions_->cut_after.has_value() &&
      admitted_ >= *conditions_->cut_after) {
    Push({.kind = Kind::kCut});
  }
}

void RelayDirection::LoseReceiver() {
  lost_ = true;
  blocked_ = false;
  pieces_.clear();
  held_ = 0;
}

void RelayDirection::Admit(Piece piece) {
  Settle();
  const bool over = closed_ || cut_;
  if (over || loses()) {
    lost_ = lost_ || !over;
    return;
  }
  if (piece.kind == Kind::kBytes) {
    const int64_t left =
        conditions_->cut_after.value_or(std::numeric_limits<int64_t>::max()) -
        admitted_;
    if (static_cast<int64_t>(piece.bytes.size()) > left) {
      piece.bytes.resize(static_cast<size_t>(left));
    }
    Flip(&piece.bytes);
    admitted_ += static_cast<int64_t>(piece.bytes.size());
  }
  Push(std::move(piece));
  // These may have been the last that were to pass.
  Settle();
}

void RelayDirection::Flip(std::vector<char>* bytes) {
  const auto flip = [&](size_t at) {
    (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << (random_() % 8)));
    ++*num_flips_;
  };
  if (conditions_->flip_rate > 0) {
    std::bernoulli_distribution chance(conditions_->flip_rate);
    for (size_t i = 0; i < bytes->size(); ++i) {
      if (chance(random_)) flip(i);
    }
  }
  const int64_t at = conditions_->flip_at.value_or(-1) - admitted_;
  if (at >= 0 && at < static_cast<int64_t>(bytes->size())) {
    flip(static_cast<size_t>(at));
  }
}

int64_t RelayDirection::DueNs(size_t size) {
  const int64_t jitter_ns = absl::ToInt64Nanoseconds(conditions_->jitter);
  const int64_t extra_ns =
      jitter_ns == 0 ? 0
                     : static_cast<int64_t>(
                           random_() % static_cast<uint64_t>(jitter_ns + 1));
  line_free_ns_ = std::max(line_free_ns_, RelayNowNs());
  if (conditions_->rate > 0) {
    line_free_ns_ +=
        static_cast<int64_t>(size) * 1'000'000'000 / conditions_->rate;
  }
  return line_free_ns_ + absl::ToInt64Nanoseconds(conditions_->delay) +
         extra_ns;
}

void RelayDirection::Push(Piece piece) {
  last_due_ns_ = std::max(last_due_ns_, DueNs(piece.bytes.size()));
  piece.due_ns = last_due_ns_;
  closed_ = closed_ || piece.kind == Kind::kEnd;
  cut_ = cut_ || piece.kind == Kind::kCut;
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
