// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/timer.h"
#include "common/http/metrics_routes.h"
#include "common/metrics/metrics.h"
#include "common/rpc/server.h"
#include "coordinator/api_keys.h"
#include "coordinator/cluster_service.h"
#include "coordinator/coordinator_metrics.h"
#include "coordinator/generation_service.h"
#include "coordinator/http/rpc_routes.h"
#include "coordinator/inspect_service.h"
#include "coordinator/membership.h"
#include "coordinator/model_catalog.h"
#include "coordinator/options.h"
#include "coordinator/registry.h"
#include "coordinator/speculation_priors.h"

namespace specwire::coordinator {

// A whole coordinator: the parts, wired up and listening.
//
// Thread safety: any thread; Shutdown from one.
// Lifetime: the destructor shuts down without grace.
class Coordinator {
 public:
  // INVALID_ARGUMENT for a bad option, UNAVAILABLE "cannot listen on ..." if an
  // address is taken.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(
      const CoordinatorOptions& options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // HOST:PORT of gRPC.
  const std::string& address() const { return server_->address(); }
  // HOST:PORT of HTTP; empty if it is not served.
  std::string http_address() const;
  const Registry& registry() const { return registry_; }
  const MetricsRegistry& metrics() const { return metrics_registry_; }
  int num_requests() const { return generation_->num_requests(); }

  // Health becomes NOT_SERVING and new requests are refused, in a way that
  // tells clients to go on elsewhere (common/base/draining.h); running ones go
  // on.
  void Drain();
  // Drains; running requests have `grace` to end and then fail, in that same
  // way. DEADLINE_EXCEEDED if calls
  // do not end even then: the process should exit without destructors. A second
  // call returns the first one's result.
  absl::Status Shutdown(absl::Duration grace);

 private:
  explicit Coordinator(const CoordinatorOptions& options);
  absl::Status Listen();
  absl::Status ListenHttp();
  absl::Status LoadKeys();
  // The keys' files are looked at now and then.
  void RefreshKeys();
  void AddNodeGauges();
  HealthReport Health() const;
  // Drops clients that do not read, now and then.
  void CheckStalls();

  const CoordinatorOptions options_;
  // Drain() was called, and Shutdown(): nothing is looked after any more.
  std::atomic<bool> draining_ = false;
  std::atomic<bool> stopping_ = false;
  // Held by CheckStalls and RefreshKeys, so that Shutdown can wait for them.
  Mutex periodic_mutex_;
  bool shut_down_ = false;
  absl::Status shutdown_status_;

  MetricsRegistry metrics_registry_;
  CoordinatorMetrics metrics_;
  Registry registry_;
  ModelCatalog catalog_;
  SpeculationPriors priors_;
  // Destroyed when sessions and membership, which use it or call it, are gone.
  TimerThread timer_;
  std::unique_ptr<GenerationService> generation_;
  std::unique_ptr<Membership> membership_;
  std::unique_ptr<ClusterService> cluster_;
  std::unique_ptr<InspectService> inspect_;
  // Null if none are asked for.
  std::unique_ptr<ApiKeys> api_keys_;
  std::unique_ptr<ApiKeys> operator_keys_;
  std::unique_ptr<RpcServer> server_;
  HttpBackend http_backend_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace specwire::coordinator
