// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/metrics/metrics.h"
#include "common/rpc/stream.h"
#include "common/rpc/stream_watch.h"
#include "coordinator/coordinator_metrics.h"
#include "coordinator/membership.h"
#include "coordinator/options.h"
#include "coordinator/registry.h"
#include "specwire/v1/cluster.grpc.pb.h"

namespace specwire::coordinator {

// ClusterService: nodes join, operators look.
//
// Thread safety: any thread.
// Lifetime: registries and membership outlive it. It outlives the server.
class ClusterService final : public v1::ClusterService::CallbackService {
 public:
  ClusterService(const CoordinatorOptions& options,
                 const Registry* registry,
                 const MetricsRegistry* metrics,
                 const CoordinatorMetrics* requests,
                 Membership* membership);

  grpc::ServerBidiReactor<v1::JoinRequest, v1::JoinResponse>* Join(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context,
                                      const v1::ListNodesRequest* request,
                                      v1::ListNodesResponse* response) override;
  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const v1::DrainNodeRequest* request,
                                      v1::DrainNodeResponse* response) override;
  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context,
                                     const v1::GetStatsRequest* request,
                                     v1::GetStatsResponse* response) override;

  // Ends all Join streams, and refuses new ones, with UNAVAILABLE.
  void Shutdown();

 private:
  class JoinHandler;
  using Sender = std::shared_ptr<ServerSender<v1::JoinResponse>>;
  // An open Join stream.
  struct Stream {
    Sender sender;
    // Of the node that has registered on it; empty: none has yet.
    std::string node_id;
  };

  // False if shutting down.
  bool AddStream(const void* key, const Sender& sender);
  void SetStreamNode(const void* key, const std::string& node_id);
  void RemoveStream(const void* key);
  absl::Status Drain(const v1::DrainNodeRequest& request, v1::Node* node);

  const CoordinatorOptions options_;
  const Registry* const registry_;
  const MetricsRegistry* const metrics_;
  const CoordinatorMetrics* const requests_;
  const SteadyClock clock_;
  const absl::Time started_ = clock_.Now();
  Membership* const membership_;
  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Open Join streams by their handler.
  std::map<const void*, Stream> streams_ ABSL_GUARDED_BY(mutex_);
  StreamWatch watch_;
};

}  // namespace specwire::coordinator
