// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/simulation.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/simulate/draft_side.h"
#include "bench/simulate/request.h"
#include "bench/simulate/verify_side.h"
#include "bench/simulate/virtual_time.h"

namespace specwire::simulate {
namespace {

// The cluster, and who comes next.
class Simulation {
 public:
  Simulation(const Settings& settings,
             const std::vector<Trace>& traces,
             absl::Span<const size_t> order)
      : settings_(settings),
        traces_(traces),
        order_(order),
        random_(settings.seed) {
    for (int i = 0; i < settings.num_verifiers; ++i) {
      verifiers_.push_back(std::make_unique<VerifySide>(
          &time_, settings.plain, settings.verify));
    }
    for (int i = 0; i < settings.num_draft_nodes; ++i) {
      drafters_.push_back(std::make_unique<DraftSide>(
          &time_, settings.plain, settings.draft, settings.verify));
    }
    loads_.resize(verifiers_.size());
    results_.resize(order.size());
  }

  absl::StatusOr<std::vector<RequestResult>> Run() {
    for (int i = 0; i < settings_.concurrency; ++i) StartNext();
    while (num_ended_ < order_.size() && status_.ok()) {
      if (!time_.Step()) status_ = absl::InternalError("the requests hang");
      CheckNodes();
    }
    if (!status_.ok()) return status_;
    return std::move(results_);
  }

 private:
  void StartNext() {
    if (next_ >= order_.size()) return;
    const size_t index = next_++;
    const auto least = std::min_element(loads_.begin(), loads_.end());
    const auto node = static_cast<size_t>(least - loads_.begin());
    ++loads_[node];
    Request::Context context{
        .settings = &settings_,
        .time = &time_,
        .random = &random_,
        .verifier = verifiers_[node].get(),
        .drafter = drafters_[index % drafters_.size()].get(),
        .priors = settings_.priors ? &priors_ : nullptr,
        .trace = &traces_[order_[index]],
        .next_stream = &next_stream_};
    requests_.push_back(std::make_unique<Request>(
        context,
        [this, index, node](absl::Status status, RequestResult result) {
          --loads_[node];
          OnEnded(index, std::move(status), std::move(result));
        }));
    requests_.back()->Start();
  }

  void OnEnded(size_t index, absl::Status status, RequestResult result) {
    if (!status.ok() && status_.ok()) {
      status_ = absl::InternalError(
          absl::StrCat("request ", index, ": ", status.ToString()));
    }
    result.trace = order_[index];
    results_[index] = std::move(result);
    ++num_ended_;
    time_.At(time_.now(), [this] { StartNext(); });
  }

  void CheckNodes() {
    for (const auto& node : verifiers_) CheckNode(node->failure());
    for (const auto& node : drafters_) CheckNode(node->failure());
  }
  void CheckNode(const std::string& failure) {
    if (!failure.empty() && status_.ok()) {
      status_ = absl::InternalError(failure);
    }
  }

  const Settings& settings_;
  const std::vector<Trace>& traces_;
  const absl::Span<const size_t> order_;
  VirtualTime time_;
  Random random_;
  coordinator::SpeculationPriors priors_;
  std::vector<std::unique_ptr<VerifySide>> verifiers_;
  // Requests on each of them.
  std::vector<int> loads_;
  std::vector<std::unique_ptr<DraftSide>> drafters_;
  // Ended ones stay: messages to them may be on their way.
  std::vector<std::unique_ptr<Request>> requests_;
  int64_t next_stream_ = 1;
  size_t next_ = 0;
  size_t num_ended_ = 0;
  std::vector<RequestResult> results_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::vector<RequestResult>> Simulate(
    const Settings& settings,
    const std::vector<Trace>& traces,
    absl::Span<const size_t> order) {
  return Simulation(settings, traces, order).Run();
}

}  // namespace specwire::simulate
