// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "cli/bench/pacer.h"
#include "cli/bench/record.h"
#include "common/base/mutex.h"
#include "specwire/v1/generation.grpc.pb.h"

namespace specwire::cli::bench {

// Sends requests and records what comes back. Streams are read by gRPC's own
// few threads, however many there are: the client shares its processors with
// the servers that it measures.
//
// Thread safety: Stop from any thread, the rest from one.
// Lifetime: the stubs must outlive it.
class LoadGenerator {
 public:
  using Stub = v1::GenerationService::Stub;
  using MakeRequest = std::function<v1::GenerateRequest(const Record&)>;

  struct Settings {
    // Each request uses the next one: a connection carries only so many
    // streams.
    std::vector<Stub*> stubs;
    // Fills in the request of a record whose index, mode and question are set.
    MakeRequest make_request;
    // Of the data set; requests take them in turns.
    size_t num_questions = 1;
    // From the time a request was meant to be sent.
    absl::Duration deadline = absl::InfiniteDuration();
    // So many failures in a row, overload left out, end the run.
    int give_up_after = 20;
    // Told now and then, by the thread that runs: requests that have ended, of
    // those that have failed, and requests in flight.
    std::function<void(int64_t num_done, int64_t num_failed, int64_t in_flight)>
        on_progress = [](int64_t, int64_t, int64_t) {};
  };

  explicit LoadGenerator(Settings settings);
  // REQUIRES: nothing runs.
  ~LoadGenerator();
  LoadGenerator(const LoadGenerator&) = delete;
  LoadGenerator& operator=(const LoadGenerator&) = delete;

  struct Block {
    int64_t number = 0;
    Mode mode = Mode::kPlain;
    // Indices [begin, end).
    int64_t begin = 0;
    int64_t end = 0;
    // No request starts so long after the block has begun.
    absl::Duration duration = absl::InfiniteDuration();
  };

  // Sends a block's requests as `pacer` says and waits until all have ended.
  // Appends their records, in the order in which they ended, and returns the
  // time from the start to the end of the last one.
  absl::Duration Run(const Block& block,
                     Pacer* pacer,
                     std::vector<Record>* records);

  // Cancels what is in flight and starts nothing more.
  void Stop();
  // Stop was called, or too many requests have failed.
  bool stopped() const;

  // Since this was made.
  absl::Duration Now() const;

 private:
  class Call;

  static absl::Time SteadyNow();
  void StartCall(const Block& block, int64_t index, absl::Duration scheduled);
  // Waits until a request may start or has ended, and takes those that have.
  std::vector<Record> Wait(absl::Duration until);
  // Gives up if too many have failed in a row.
  void Count(const Record& record);
  // Called by a call as its last deed.
  void OnEnd(Call* call, Record record);

  const Settings settings_;
  const absl::Time start_;
  // Counted over all blocks.
  int64_t num_started_ = 0;
  int64_t num_done_ = 0;
  int64_t num_failed_ = 0;
  int num_failures_in_a_row_ = 0;

  mutable Mutex mutex_;
  CondVar changed_;
  std::unordered_map<Call*, std::shared_ptr<Call>> calls_
      ABSL_GUARDED_BY(mutex_);
  std::vector<Record> ended_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace specwire::cli::bench
