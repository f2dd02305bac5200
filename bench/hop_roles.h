// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/stream_worker.h"
#include "common/rpc/stream.h"
#include "specwire/v1/draft.grpc.pb.h"
#include "specwire/v1/verifier.grpc.pb.h"

// Those between whom the messages of a round hop, with next to nothing of their
// own to do, on the stream classes and the workers that the programs use.

namespace specwire::bench {

// A node's thread: takes events in, and works after the last.
class HopWorker final
    : private StreamWorker<absl::AnyInvocable<void()>>::Client {
 public:
  using Task = absl::AnyInvocable<void()>;
  using Worker = StreamWorker<Task>;

  // `work`: how long it computes before it does a task.
  explicit HopWorker(absl::Duration work);

  Worker* worker() { return &worker_; }

 private:
  void OnEvent(Worker::StreamId stream, Task task) override;
  void OnGone(Worker::StreamId /*stream*/) override {}
  absl::Duration Work() override;
  void OnStop() override {}

  const absl::Duration work_;
  Task task_;
  Worker worker_;
};

// When rounds began and ended.
//
// Thread safety: any thread.
class RoundTimes {
 public:
  void Begin();
  // Does nothing if none has begun.
  void End();
  // Waits until so many have ended, and takes them all: microseconds. Takes
  // what there is when nothing ends for seconds: a connection was lost.
  std::vector<double> Take(size_t count);

 private:
  Mutex mutex_;
  CondVar changed_;
  absl::Time begin_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::vector<double> rounds_ ABSL_GUARDED_BY(mutex_);
};

// A draft node: answers every message with a proposal.
//
// Lifetime: the worker must outlive it.
class HopDrafter final : public v1::DraftService::CallbackService {
 public:
  // `worker`: who answers; null: gRPC's thread.
  explicit HopDrafter(HopWorker* worker) : worker_(worker) {}
  grpc::ServerBidiReactor<v1::DraftRequest, v1::DraftResponse>* Draft(
      grpc::CallbackServerContext* context) override;

 private:
  HopWorker* const worker_;
};

// A verifier: answers every proposal with a commit. A round lasts from a commit
// to the time at which the worker has the proposal.
//
// Lifetime: the worker and the times must outlive it.
class HopVerifier final : public v1::VerifierService::CallbackService {
 public:
  // `pass`: how long it computes for a commit.
  HopVerifier(HopWorker* worker, absl::Duration pass, RoundTimes* times)
      : worker_(worker), pass_(pass), times_(times) {}
  grpc::ServerBidiReactor<v1::DecodeRequest, v1::DecodeResponse>* Decode(
      grpc::CallbackServerContext* context) override;

 private:
  HopWorker* const worker_;
  const absl::Duration pass_;
  RoundTimes* const times_;
};

// A coordinator with one call: passes commits on to the drafter and proposals
// to the verifier, on a strand. It begins at once and ends with the streams.
void StartHopCoordinator(const std::string& verifier,
                         const std::string& drafter);

// A caller of HopDrafter who sends the next message when one is answered, until
// the stream ends. A round lasts from a message to its answer. It begins at
// once.
//
// `worker`: who takes the answers; null: gRPC's thread.
// Lifetime: the worker and the times must outlive the stream.
std::shared_ptr<ClientSender<v1::DraftRequest>> StartHopCaller(
    const std::string& drafter, HopWorker* worker, RoundTimes* times);

}  // namespace specwire::bench
