// SPDX-License-Identifier: Apache-2.0
#include "common/http/client_watch.h"

#include <utility>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/thread_name.h"

namespace specwire {
namespace {

// A closed connection, or one whose other side has said that it sends no more:
// a client that hangs up looks no different.
constexpr short kGone = POLLRDHUP | POLLHUP | POLLERR | POLLNVAL;
// Of a process that had no descriptor left when the watch began.
constexpr int kLookPeriodMs = 50;

}  // namespace

class ClientWatch::Entry final : public HttpClient::Watch {
 public:
  Entry(ClientWatch* watch, int64_t number) : watch_(watch), number_(number) {}
  ~Entry() override { watch_->Remove(number_); }

 private:
  ClientWatch* const watch_;
  const int64_t number_;
};

ClientWatch::ClientWatch() : wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  thread_ = std::thread([this] { Run(); });
}

ClientWatch::~ClientWatch() {
  {
    MutexLock lock(&mutex_);
    ended_ = true;
  }
  Wake();
  thread_.join();
  if (wake_fd_ >= 0) close(wake_fd_);
}

void ClientWatch::Wake() { eventfd_write(wake_fd_, 1); }

std::unique_ptr<HttpClient::Watch> ClientWatch::Add(
    int fd, std::function<void()> on_gone) {
  int64_t number = 0;
  {
    MutexLock lock(&mutex_);
    number = ++last_number_;
    if (stopped_) {
      on_gone();
    } else {
      watched_[number] = {fd, std::move(on_gone)};
    }
  }
  Wake();
  return std::make_unique<Entry>(this, number);
}

void ClientWatch::Remove(int64_t number) {
  {
    MutexLock lock(&mutex_);
    watched_.erase(number);
  }
  // A socket that somebody polls does not close.
  Wake();
}

void ClientWatch::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  for (auto& [number, watched] : watched_) {
    if (watched.on_gone != nullptr) std::exchange(watched.on_gone, nullptr)();
  }
}

void ClientWatch::Run() {
  SetThreadName("http_watch");
  std::vector<pollfd> fds;
  std::vector<int64_t> numbers;
  for (;;) {
    fds.assign(1, {wake_fd_, POLLIN, 0});
    numbers.assign(1, 0);
    {
      MutexLock lock(&mutex_);
      if (ended_) return;
      for (const auto& [number, watched] : watched_) {
        if (watched.on_gone == nullptr) continue;
        fds.push_back({watched.fd, POLLRDHUP, 0});
        numbers.push_back(number);
      }
    }
    poll(fds.data(), fds.size(), wake_fd_ >= 0 ? -1 : kLookPeriodMs);
    eventfd_t count = 0;
    if (fds[0].revents != 0) eventfd_read(wake_fd_, &count);
    MutexLock lock(&mutex_);
    for (size_t i = 1; i < fds.size(); ++i) {
      if ((fds[i].revents & kGone) == 0) continue;
      const auto found = watched_.find(numbers[i]);
      if (found == watched_.end() || found->second.on_gone == nullptr) continue;
      // Called under the lock, so that Remove waits for it.
      std::exchange(found->second.on_gone, nullptr)();
    }
  }
}

}  // namespace specwire
