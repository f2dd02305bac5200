// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/http/http_message.h"

namespace specwire {

// Looks after sockets whose answers are being made, so that work for a client
// that has gone is ended though nobody reads or writes the socket meanwhile.
//
// Thread safety: any thread.
// Lifetime: outlives what Add returns.
class ClientWatch {
 public:
  ClientWatch();
  ~ClientWatch();
  ClientWatch(const ClientWatch&) = delete;
  ClientWatch& operator=(const ClientWatch&) = delete;

  // See HttpClient::OnGone. The socket must stay open for as long as what is
  // returned lives.
  std::unique_ptr<HttpClient::Watch> Add(int fd, std::function<void()> on_gone);
  // Takes all clients for gone, later ones too.
  void Stop();

 private:
  class Entry;
  struct Watched {
    int fd = -1;
    // Null once called.
    std::function<void()> on_gone;
  };

  void Remove(int64_t number);
  void Run();
  void Wake();

  int wake_fd_ = -1;
  Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, Watched> watched_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace specwire
