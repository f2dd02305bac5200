// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "specwire/v1/generation.grpc.pb.h"

namespace specwire::bench {

// Thousands of Generate calls at once from one process, without a thread for
// each: gRPC's callback API over few channels.
//
// Thread safety: one thread; the counts from any.
// Lifetime: the destructor cancels what runs and waits for it.
class LoadClient {
 public:
  LoadClient(const std::string& address, int num_channels);
  ~LoadClient();
  LoadClient(const LoadClient&) = delete;
  LoadClient& operator=(const LoadClient&) = delete;

  // Opens a call. With `keep_times`, Times() has its deltas.
  void Open(const v1::GenerateRequest& request, bool keep_times = false);
  // Cancels all calls and waits for their ends.
  void CancelAll();
  // Waits until so many calls have had a delta or have ended; false if they do
  // not in time.
  bool WaitForFirstDeltas(int64_t count, absl::Duration timeout);
  // Waits until all calls have ended; false if they do not in time.
  bool WaitForEnds(absl::Duration timeout);

  int64_t num_opened() const { return num_opened_; }
  // Calls that have had a delta, and calls that have ended, well or not.
  int64_t num_started() const { return num_started_; }
  int64_t num_done() const { return num_done_; }
  int64_t num_failed() const { return num_failed_; }
  // Deltas, each of which is a commit, and their tokens.
  int64_t num_deltas() const { return num_deltas_; }
  int64_t num_tokens() const { return num_tokens_; }
  // Replies that were marked as synthetic.
  int64_t num_marked() const { return num_marked_; }
  // Why a call failed; empty if none did.
  std::string failure() const;

  // For each call that was opened with keep_times: when its deltas came.
  // REQUIRES: all calls have ended.
  std::vector<std::vector<absl::Time>> Times() const;

 private:
  class Call;

  void OnStarted();
  void OnDone(Call* call, const grpc::Status& status);

  std::vector<std::unique_ptr<v1::GenerationService::Stub>> stubs_;
  std::atomic<int64_t> num_opened_{0};
  std::atomic<int64_t> num_started_{0};
  std::atomic<int64_t> num_done_{0};
  std::atomic<int64_t> num_failed_{0};
  std::atomic<int64_t> num_deltas_{0};
  std::atomic<int64_t> num_tokens_{0};
  std::atomic<int64_t> num_marked_{0};

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
  std::string failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specwire::bench
