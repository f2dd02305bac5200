// SPDX-License-Identifier: Apache-2.0
#include "cli/generate_call.h"

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/interrupt.h"

namespace specwire::cli {

GenerateOutcome CallGenerate(
    Client* client,
    const v1::GenerateRequest& request,
    const std::function<bool(const v1::GenerateResponse&)>& on_response) {
  GenerateOutcome outcome;
  // No deadline: a long completion is no fault, and keepalive notices a
  // coordinator that has vanished.
  grpc::ClientContext context;
  CancelOnInterrupt interrupt(&context);
  int missing = std::max(request.n(), 1);
  auto reader = client->generation()->Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
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
