// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/in_process_cluster.h"

#include <cstdlib>
#include <utility>

#include "common/base/logging.h"
#include "common/rpc/channel.h"

namespace specwire {

InProcessCluster::InProcessCluster(coordinator::CoordinatorOptions options)
    : options_(std::move(options)) {
  options_.listen = "127.0.0.1:0";
  StartCoordinator();
}

InProcessCluster::~InProcessCluster() = default;

coordinator::CoordinatorOptions InProcessCluster::PatientOptions() {
  coordinator::CoordinatorOptions options;
  options.max_silence = absl::Seconds(60);
  options.max_stall = absl::Seconds(60);
  return options;
}

void InProcessCluster::StopCoordinator() {
  options_.listen = coordinator_->address();
  coordinator_.reset();
}

void InProcessCluster::StartCoordinator() {
  auto started = coordinator::Coordinator::Start(options_);
  if (!started.ok()) {
    LogLine(LogLevel::kError, started.status().ToString());
    std::abort();
  }
  coordinator_ = *std::move(started);
  const auto channel = MakeChannel(coordinator_->address());
  generation_ = v1::GenerationService::NewStub(channel);
  cluster_ = v1::ClusterService::NewStub(channel);
}

FakeVerifier* InProcessCluster::AddVerifier(FakeVerifierOptions options) {
  options.coordinators = {coordinator_->address()};
  verifiers_.push_back(std::make_unique<FakeVerifier>(std::move(options)));
  return verifiers_.back().get();
}

FakeDrafter* InProcessCluster::AddDrafter(FakeDrafterOptions options) {
  options.coordinators = {coordinator_->address()};
  drafters_.push_back(std::make_unique<FakeDrafter>(std::move(options)));
  return drafters_.back().get();
}

bool InProcessCluster::WaitServing(int num_verifiers, int num_drafters) {
  const coordinator::Registry& registry = coordinator_->registry();
  return Eventually([&] {
    return registry.Count(coordinator::NodeRole::kVerifier,
                          coordinator::NodeState::kServing) == num_verifiers &&
           registry.Count(coordinator::NodeRole::kDraft,
                          coordinator::NodeState::kServing) == num_drafters;
  });
}

GenerateResult InProcessCluster::Generate(
    const v1::GenerateRequest& request,
    const std::function<bool(const v1::GenerateDelta&)>& on_delta,
    absl::Duration timeout) {
  return CallGenerate(generation_.get(), request, on_delta, timeout);
}

double InProcessCluster::Metric(const std::string& name,
                                const std::string& label) const {
  return SumSeries(coordinator_->metrics().Expose(), name, label);
}

}  // namespace specwire
