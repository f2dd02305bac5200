// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/coordinator.h"
#include "specwire/v1/cluster.grpc.pb.h"
#include "specwire/v1/generation.grpc.pb.h"
#include "tests/testing/fake_nodes.h"
#include "tests/testing/generate_call.h"

namespace specwire {

// A coordinator with fake nodes in this process, over real gRPC on free ports.
class InProcessCluster {
 public:
  explicit InProcessCluster(
      coordinator::CoordinatorOptions options = PatientOptions());
  ~InProcessCluster();

  // Default options, save that a machine which is busy with other tests does
  // not make nodes suspect, and that nobody drafts but the drafters added.
  static coordinator::CoordinatorOptions PatientOptions();

  // The nodes join by themselves; WaitServing waits for them.
  FakeVerifier* AddVerifier(FakeVerifierOptions options = {});
  FakeDrafter* AddDrafter(FakeDrafterOptions options = {});
  // False if so many nodes do not serve within seconds.
  bool WaitServing(int num_verifiers, int num_drafters);

  // Calls and reads to the end. `on_delta` may stop reading by returning false:
  // the call is then cancelled.
  GenerateResult Generate(
      const v1::GenerateRequest& request,
      const std::function<bool(const v1::GenerateDelta&)>& on_delta = nullptr,
      absl::Duration timeout = absl::Seconds(20));

  coordinator::Coordinator* coordinator() { return coordinator_.get(); }
  v1::GenerationService::Stub* generation() { return generation_.get(); }
  v1::ClusterService::Stub* cluster() { return cluster_.get(); }
  // Stops the coordinator, or starts it again at the same address.
  void StopCoordinator();
  void StartCoordinator();

  // The value of a series in /metrics' text, summed over all label sets that
  // contain `label` (all if empty).
  double Metric(const std::string& name, const std::string& label = "") const;

 private:
  coordinator::CoordinatorOptions options_;
  std::unique_ptr<coordinator::Coordinator> coordinator_;
  std::unique_ptr<v1::GenerationService::Stub> generation_;
  std::unique_ptr<v1::ClusterService::Stub> cluster_;
  std::vector<std::unique_ptr<FakeVerifier>> verifiers_;
  std::vector<std::unique_ptr<FakeDrafter>> drafters_;
};

}  // namespace specwire
