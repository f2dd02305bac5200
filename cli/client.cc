// SPDX-License-Identifier: Apache-2.0
#include "cli/client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/command.h"
#include "common/base/host_port.h"
#include "common/base/retry_delay.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"

namespace specwire::cli {
namespace {

// Waits until the channel is connected. Unlike WaitForConnected it gives up at
// the first refusal instead of trying again until the deadline.
bool WaitConnected(grpc::Channel* channel, absl::Time deadline) {
  for (;;) {
    const grpc_connectivity_state state = channel->GetState(true);
    if (state == GRPC_CHANNEL_READY) {
      return true;
    }
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE ||
        state == GRPC_CHANNEL_SHUTDOWN ||
        !channel->WaitForStateChange(state, absl::ToChronoTime(deadline))) {
      return false;
    }
  }
}

}  // namespace

void AddClientFlags(CLI::App* app, ClientFlags* flags) {
  app->add_option("--coordinator",
                  flags->coordinators,
                  "HOST:PORT of the coordinator; a comma-separated list is "
                  "tried in order")
      ->capture_default_str();
}

absl::StatusOr<std::vector<std::string>> ParseCoordinators(
    const ClientFlags& flags) {
  return ParseAddressList(flags.coordinators, "--coordinator");
}

Client::Client(std::string address, std::shared_ptr<grpc::Channel> channel)
    : address_(std::move(address)),
      channel_(std::move(channel)),
      generation_(v1::GenerationService::NewStub(channel_)),
      cluster_(v1::ClusterService::NewStub(channel_)) {}

absl::StatusOr<std::unique_ptr<Client>> Client::ConnectTo(
    const std::string& address, absl::Duration timeout) {
  std::shared_ptr<grpc::Channel> channel = MakeChannel(address);
  if (!WaitConnected(channel.get(), absl::Now() + timeout)) {
    return absl::UnavailableError(
        absl::StrCat("no coordinator answers at ", address));
  }
  return std::unique_ptr<Client>(new Client(address, std::move(channel)));
}

bool Client::WaitLost(absl::Duration timeout) {
  return channel_->WaitForStateChange(
      GRPC_CHANNEL_READY, absl::ToChronoTime(absl::Now() + timeout));
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(
    const ClientFlags& flags) {
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<std::string> addresses,
                            ParseCoordinators(flags));
  for (const std::string& address : addresses) {
    absl::StatusOr<std::unique_ptr<Client>> client =
        ConnectTo(address, kConnectTimeout);
    if (client.ok()) return client;
  }
  return absl::UnavailableError(absl::StrCat(
      "no coordinator answers at ",
      absl::StrJoin(addresses, " or "),
      "; start a cluster with 'specwire up', or name its coordinator with "
      "--coordinator HOST:PORT"));
}

void SetTimeout(absl::Duration timeout, grpc::ClientContext* context) {
  context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

int FailConnect(const absl::Status& status) {
  PrintError(status.message());
  return status.code() == absl::StatusCode::kUnavailable ? kExitUnreachable
                                                         : kExitUsage;
}

int FailCall(const grpc::Status& status) {
  std::string message = status.error_message();
  if (message.empty()) {
    message = absl::StrCat("the call failed with gRPC status ",
                           static_cast<int>(status.error_code()));
  }
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      absl::StrAppend(&message, "; 'specwire nodes' shows who serves");
      break;
    case grpc::StatusCode::RESOURCE_EXHAUSTED: {
      const auto delay = RetryDelay(FromGrpcStatus(status));
      absl::StrAppend(&message,
                      "; try again ",
                      delay.has_value()
                          ? absl::StrCat("in ", absl::FormatDuration(*delay))
                          : "later");
      break;
    }
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      absl::StrAppend(&message,
                      "; the coordinator is up but too slow to answer");
      break;
    case grpc::StatusCode::UNIMPLEMENTED:
      absl::StrAppend(&message, "; this coordinator does not serve it");
      break;
    default:
      break;
  }
  PrintError(message);
  return kExitFailed;
}

}  // namespace specwire::cli
