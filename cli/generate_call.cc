// SPDX-License-Identifier: Apache-2.0
#include "cli/generate_call.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "common/rpc/stream_watch.h"

namespace specwire::cli {
namespace {

constexpr int kAliveIntervalMs = 2000;
// So many times as long nothing comes from a call that is lost.
constexpr int64_t kMissedAlive = 7;
// For the first message, before which a long prompt is tokenized.
constexpr absl::Duration kLongestBegin = absl::Seconds(30);

}  // namespace

GenerateOutcome CallGenerate(
    Client* client,
    const v1::GenerateRequest& request,
    const std::function<bool(const v1::GenerateResponse&)>& on_response) {
  GenerateOutcome outcome;
  // No deadline: a long completion is no fault, and keepalive notices a
  // coordinator that has vanished.
  grpc::ClientContext context;
  const OnInterrupt interrupt([&context] { context.TryCancel(); });
  int missing = std::max(request.n(), 1);
  v1::GenerateRequest asked = request;
  if (!asked.has_alive_interval_ms()) {
    asked.set_alive_interval_ms(kAliveIntervalMs);
  }
  // A connection may live on and not carry this call any more.
  std::atomic<bool> silent = false;
  StreamWatch watch(kLongestBegin);
  const auto watched = watch.Add([&](const absl::Status& /*status*/) {
    silent = true;
    context.TryCancel();
  });
  auto reader = client->generation()->Generate(&context, asked);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    watched->OnHeard();
    if (response.has_started()) {
      watched->LimitTo(absl::Milliseconds(
          kMissedAlive * response.started().alive_interval_ms()));
    }
    if (response.has_alive()) continue;
    if (response.has_finished()) {
      --missing;
    }
    if (!outcome.abandoned && !on_response(response)) {
      outcome.abandoned = true;
      context.TryCancel();
    }
  }
  outcome.status = reader->Finish();
  outcome.interrupted = interrupt.interrupted();
  outcome.silent = silent && !outcome.interrupted && !outcome.abandoned;
  if (outcome.silent) {
    outcome.status = grpc::Status(
        grpc::StatusCode::UNAVAILABLE,
        "the coordinator has said nothing for too long, not even that it has "
        "the request");
  }
  if (missing <= 0 && !outcome.abandoned) {
    // All has come; a connection that is lost behind it costs nothing.
    outcome.status = grpc::Status::OK;
  }
  if (outcome.status.ok() && missing > 0) {
    outcome.status = grpc::Status(grpc::StatusCode::INTERNAL,
                                  "the reply ended before its last message");
  }
  return outcome;
}

int ReportOutcome(const GenerateOutcome& outcome) {
  if (outcome.status.ok()) {
    return kExitDone;
  }
  if (outcome.interrupted) {
    PrintError("cancelled");
    return kExitInterrupted;
  }
  if (outcome.abandoned) {
    PrintError("cancelled, because standard output cannot be written");
    return kExitFailed;
  }
  return FailCall(outcome.status);
}

}  // namespace specwire::cli
