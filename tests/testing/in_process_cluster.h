// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/coordinator.h"
#include "specwire/v1/cluster.grpc.pb.h"
#include "specwire/v1/generation.grpc.pb.h"
#include "tests/testing/fake_nodes.h"

namespace specwire {

// All that a Generate call brought.
struct GenerateResult {
  absl::Status status;
  v1::GenerateStarted started;
  std::vector<int32_t> token_ids;
  // Of deltas and the last message.
  std::string text;
  std::vector<v1::TokenOrigin> origins;
  v1::GenerateFinished finished;
  // What was wrong with the order or the shape of the messages; empty if
  // nothing.
  std::string fault;
};

// A coordinator with fake nodes in this process, over real gRPC on free ports.
class InProcessCluster {
 public:
  explicit InProcessCluster(coordinator::CoordinatorOptions options = {});
  ~InProcessCluster();

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

// Waits until `condition` holds; false if it does not within `timeout`.
bool Eventually(const std::function<bool()>& condition,
                absl::Duration timeout = absl::Seconds(10));

// A greedy request for `max_tokens` tokens after `text`.
v1::GenerateRequest GreedyRequest(const std::string& text, int max_tokens);

}  // namespace specwire
