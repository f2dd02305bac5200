// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/base/timer.h"
#include "coordinator/model_catalog.h"
#include "coordinator/node_link.h"
#include "coordinator/options.h"
#include "coordinator/registry.h"
#include "coordinator/worker_pool.h"
#include "grpcpp/client_context.h"

namespace specwire::coordinator {

// What membership tells others of. Called without locks, by any thread.
struct MembershipEvents {
  // A draft node has begun to take work.
  std::function<void()> drafters_gained;
  // A model is served that was not before.
  std::function<void(const std::string& name)> model_gained;
  // A node does not answer, or gets nowhere: what runs on it goes on elsewhere.
  std::function<void(const std::string& node_id, const absl::Status& why)>
      node_suspect;
};

// Turns registrations into nodes that serve: calls each new node back, asks it
// what it serves until it has answered, fills the catalogue, and watches for
// silence. Owns the channels to the nodes.
//
// Thread safety: any thread.
// Lifetime: registry and catalogue outlive it. When its destructor has returned
// no callback runs.
class Membership {
 public:
  Membership(const CoordinatorOptions& options,
             Registry* registry,
             ModelCatalog* catalog,
             MembershipEvents events);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // A node's Join stream has begun. Errors are the registry's.
  absl::StatusOr<Registry::Registration> Join(const NodeIdentity& identity);
  // See Registry::OnLoad.
  bool OnLoad(const Registry::Registration& registration, const NodeLoad& load);
  // The node says that it drains. False if the registration is not its latest.
  bool OnDraining(const Registry::Registration& registration,
                  absl::string_view reason,
                  absl::string_view grace);
  // See Registry::Drain.
  absl::Status Drain(const std::string& node_id, absl::string_view reason) {
    return registry_->Drain(node_id, reason);
  }
  // The Join stream has ended.
  void Leave(const Registry::Registration& registration,
             absl::string_view reason);

  // The way to a node; null if it has left.
  std::shared_ptr<const NodeLink> Link(const std::string& node_id) const;
  // Messages were lost on the node's connection, if that is still `link`'s:
  // from now on there is a new one.
  void RenewLink(const std::string& node_id, const NodeLink* link);

  // While it lives, a call to a node is cancelled when the node becomes
  // suspect: for calls that somebody waits for. Membership outlives it.
  class CallGuard {
   public:
    CallGuard(const Membership* owner,
              const std::string& node_id,
              grpc::ClientContext* call);
    ~CallGuard();
    CallGuard(const CallGuard&) = delete;
    CallGuard& operator=(const CallGuard&) = delete;

   private:
    const Membership* const owner_;
    grpc::ClientContext* const call_;
  };

 private:
  // Asks a node what it serves, on a worker; again later if that fails.
  void StartProbe(const NodeInfo& node, int attempt);
  void Probe(const NodeInfo& node, int attempt);
  absl::Status ProbeVerifier(const NodeInfo& node, const NodeLink& link);
  absl::Status ProbeDrafter(const NodeInfo& node, const NodeLink& link);
  // Times a call to a draft node that makes it no work, on a worker, again and
  // again while it is a member.
  void ScheduleRoundTrip(const std::string& node_id, absl::Duration pause);
  void MeasureRoundTrip(const std::string& node_id);
  // Runs `callback` later, unless stopping.
  void After(absl::Duration delay, absl::AnyInvocable<void()> callback);
  void CheckSilence();
  void TellOfDrafters();
  void TellOfSuspects();

  // Makes a context that the destructor can cancel.
  class ProbeContext;

  const CoordinatorOptions options_;
  // For channels to nodes.
  const RpcChannelOptions channel_options_;
  Registry* const registry_;
  ModelCatalog* const catalog_;
  const MembershipEvents events_;

  // Taken before the registry's own lock where both are held.
  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // By node id.
  std::map<std::string, std::shared_ptr<const NodeLink>> links_
      ABSL_GUARDED_BY(mutex_);
  // Nodes that are being asked.
  std::set<std::string> probing_ ABSL_GUARDED_BY(mutex_);
  // Draft nodes whose round trip is measured from time to time.
  std::set<std::string> measuring_ ABSL_GUARDED_BY(mutex_);
  std::set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mutex_);
  int64_t drafters_told_ ABSL_GUARDED_BY(mutex_) = 0;
  // Guarded calls, with their nodes' ids.
  mutable std::map<grpc::ClientContext*, std::string> calls_
      ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<TimerThread> timer_;
  std::unique_ptr<WorkerPool> workers_;
};

}  // namespace specwire::coordinator
