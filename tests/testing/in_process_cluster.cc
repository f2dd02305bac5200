// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/in_process_cluster.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/logging.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"

namespace specwire {
namespace {

// Checks one delta against what came before and takes it over.
void TakeDelta(const v1::GenerateDelta& delta, GenerateResult* result) {
  const int size = delta.token_ids_size();
  if (size == 0) absl::StrAppend(&result->fault, "empty delta; ");
  if (delta.first_index() != static_cast<int>(result->token_ids.size())) {
    absl::StrAppend(&result->fault,
                    "first_index ",
                    delta.first_index(),
                    " after ",
                    result->token_ids.size(),
                    " tokens; ");
  }
  if (delta.text_ends_size() != size || delta.origins_size() != size) {
    absl::StrAppend(&result->fault, "text_ends or origins differ in number; ");
  } else if (delta.text_ends(size - 1) !=
             static_cast<int>(delta.text().size())) {
    absl::StrAppend(&result->fault, "text_ends do not reach the end; ");
  }
  for (int i = 0; i < size; ++i) {
    result->token_ids.push_back(delta.token_ids(i));
    result->origins.push_back(static_cast<v1::TokenOrigin>(delta.origins(i)));
  }
  result->text += delta.text();
}

}  // namespace

InProcessCluster::InProcessCluster(coordinator::CoordinatorOptions options)
    : options_(std::move(options)) {
  options_.listen = "127.0.0.1:0";
  StartCoordinator();
}

InProcessCluster::~InProcessCluster() = default;

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
  GenerateResult result;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  const auto reader = generation_->Generate(&context, request);
  v1::GenerateResponse response;
  int num_started = 0;
  int num_finished = 0;
  while (reader->Read(&response)) {
    if (num_finished > 0) absl::StrAppend(&result.fault, "after finished; ");
    if (response.has_started()) {
      if (num_started++ > 0) absl::StrAppend(&result.fault, "started twice; ");
      result.started = response.started();
    } else if (num_started == 0) {
      absl::StrAppend(&result.fault, "not started first; ");
    }
    if (response.has_delta()) {
      TakeDelta(response.delta(), &result);
      if (on_delta != nullptr && !on_delta(response.delta())) {
        context.TryCancel();
      }
    }
    if (response.has_finished()) {
      ++num_finished;
      result.finished = response.finished();
      result.text += response.finished().text();
    }
  }
  result.status = FromGrpcStatus(reader->Finish());
  if (result.status.ok() && num_finished != 1) {
    absl::StrAppend(&result.fault, "no finished; ");
  }
  return result;
}

double InProcessCluster::Metric(const std::string& name,
                                const std::string& label) const {
  double sum = 0;
  const std::string text = coordinator_->metrics().Expose();
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, absl::StrCat(name, "{")) ||
        !absl::StrContains(line, label)) {
      continue;
    }
    double value = 0;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    if (absl::SimpleAtod(words.back(), &value)) sum += value;
  }
  return sum;
}

bool Eventually(const std::function<bool()>& condition,
                absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

v1::GenerateRequest GreedyRequest(const std::string& text, int max_tokens) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stop()->set_max_tokens(max_tokens);
  return request;
}

}  // namespace specwire
