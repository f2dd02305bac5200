// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "coordinator/coordinator_metrics.h"
#include "coordinator/model_catalog.h"
#include "coordinator/options.h"
#include "coordinator/registry.h"
#include "coordinator/session.h"
#include "coordinator/worker_pool.h"
#include "google/protobuf/message.h"
#include "specwire/v1/generation.grpc.pb.h"

namespace specwire::coordinator {

// GenerationService: what users call. Checks requests, hands them to sessions.
// What takes long (tokenizing) runs on workers, never on gRPC's threads.
//
// Thread safety: any thread.
// Lifetime: all that it is made from outlives it, and it the server.
class GenerationService final : public v1::GenerationService::CallbackService {
 public:
  GenerationService(const CoordinatorOptions& options,
                    const SessionEnvironment& environment,
                    const ModelCatalog* catalog);
  // REQUIRES: the server has been shut down and WaitForEnd has returned true.
  ~GenerationService() override;

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context,
      const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const v1::ScoreRequest* request,
                                  v1::ScoreResponse* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(
      grpc::CallbackServerContext* context,
      const v1::DetokenizeRequest* request,
      v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* RenderChat(
      grpc::CallbackServerContext* context,
      const v1::RenderChatRequest* request,
      v1::RenderChatResponse* response) override;
  grpc::ServerUnaryReactor* ListModels(
      grpc::CallbackServerContext* context,
      const v1::ListModelsRequest* request,
      v1::ListModelsResponse* response) override;

  // A draft node has begun to take work: running requests may want it.
  void OnDrafterAvailable();

  // A node is taken for lost: what runs on it goes on elsewhere.
  void OnNodeSuspect(const std::string& node_id, const absl::Status& why);

  // Drops clients that do not read.
  void CheckStalls(absl::Time now);
  // New Generate calls are refused as DrainingError says.
  void StopAccepting();
  // Ends all requests with `status`.
  void FailAll(const absl::Status& status);
  // Requests that have not ended.
  int num_requests() const;
  // Waits until all requests have ended, or `deadline`.
  bool WaitForRequests(absl::Time deadline);
  // The same until nothing of them is left, streams to nodes included.
  bool WaitForSessions(absl::Time deadline);

 private:
  using Sender = Session::Sender;

  // Takes a place for a request; RESOURCE_EXHAUSTED, UNAVAILABLE.
  absl::Status Admit();
  void OnRequestEnded();
  // Checks what needs no tokenizer, then starts a session on a worker.
  std::shared_ptr<WriterHandler> StartSession(
      grpc::CallbackServerContext* context,
      const v1::GenerateRequest& request,
      Sender sender);
  // The names by which requests may ask for a drafter that fits.
  std::vector<std::string> DrafterNames(const VerifierInfo& info) const;
  std::shared_ptr<Session> MakeSession(Session::Call call);
  std::vector<std::shared_ptr<Session>> Sessions();
  // Whose turn a call waits for.
  std::string UserOf(const grpc::CallbackServerContext& context) const;
  // Runs `work` on a worker and finishes the call with its result.
  grpc::ServerUnaryReactor* RunOnWorker(
      grpc::CallbackServerContext* context,
      const google::protobuf::Message& request,
      absl::AnyInvocable<absl::Status()> work);

  const CoordinatorOptions options_;
  const SessionEnvironment environment_;
  const ModelCatalog* const catalog_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Requests that have not ended.
  int num_requests_ ABSL_GUARDED_BY(mutex_) = 0;
  // Sessions that exist, by number.
  std::map<int64_t, std::weak_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
  int64_t last_session_ ABSL_GUARDED_BY(mutex_) = 0;
  // Last: its tasks use the rest.
  // Generate's own, so that it does not wait behind other methods' long texts.
  WorkerPool workers_;
  WorkerPool unary_workers_;
  // Each waits for verifiers.
  WorkerPool score_workers_;
};

}  // namespace specwire::coordinator
