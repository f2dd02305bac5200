// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "cli/client.h"
#include "grpcpp/support/status.h"
#include "specwire/v1/generation.pb.h"

namespace specwire::cli {

// How a Generate call ended.
struct GenerateOutcome {
  grpc::Status status;
  // The user interrupted it.
  bool interrupted = false;
  // `on_response` refused to go on.
  bool abandoned = false;
  // Nothing was heard for too long, though the connection may live:
  // UNAVAILABLE.
  bool silent = false;
};

// Calls Generate and hands over each message as it arrives. An interrupt, or
// `on_response` returning false, cancels the call. A coordinator that says
// nothing for long, not even that the request has not ended, is lost. A stream
// that ends without a `finished` message is an error.
GenerateOutcome CallGenerate(
    Client* client,
    const v1::GenerateRequest& request,
    const std::function<bool(const v1::GenerateResponse&)>& on_response);

// Prints what went wrong, if anything did; returns the exit code.
int ReportOutcome(const GenerateOutcome& outcome);

}  // namespace specwire::cli
