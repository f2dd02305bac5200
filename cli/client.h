// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"
#include "specwire/v1/cluster.grpc.pb.h"
#include "specwire/v1/generation.grpc.pb.h"

namespace specwire::cli {

// Longest wait for a connection to one coordinator, and for a short answer.
inline constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
inline constexpr absl::Duration kAnswerTimeout = absl::Seconds(30);

// The flag that every client command has.
struct ClientFlags {
  std::string coordinators = "127.0.0.1:7070";
};
void AddClientFlags(CLI::App* app, ClientFlags* flags);
// The addresses of the flag, at least one. INVALID_ARGUMENT if it is malformed.
absl::StatusOr<std::vector<std::string>> ParseCoordinators(
    const ClientFlags& flags);

// A connection to one of the coordinators.
//
// Thread safety: any thread.
class Client {
 public:
  // Connects to the first address that answers. UNAVAILABLE, with a message
  // that says what to do, if none does; INVALID_ARGUMENT if an address is
  // malformed.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(
      const ClientFlags& flags);
  // Connects to `address`. UNAVAILABLE if it does not answer within `timeout`.
  static absl::StatusOr<std::unique_ptr<Client>> ConnectTo(
      const std::string& address, absl::Duration timeout);

  const std::string& address() const { return address_; }
  // True if the connection is gone, or goes within `timeout`: the coordinator
  // has died, or is ending.
  bool WaitLost(absl::Duration timeout);

  v1::GenerationService::Stub* generation() { return generation_.get(); }
  v1::ClusterService::Stub* cluster() { return cluster_.get(); }

 private:
  Client(std::string address, std::shared_ptr<grpc::Channel> channel);

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::GenerationService::Stub> generation_;
  std::unique_ptr<v1::ClusterService::Stub> cluster_;
};

// Makes the call on `context` end after `timeout`.
void SetTimeout(absl::Duration timeout, grpc::ClientContext* context);

// Prints why Client::Connect failed; returns the exit code.
int FailConnect(const absl::Status& status);

// Prints why a call failed and what to do; returns the exit code.
int FailCall(const grpc::Status& status);

}  // namespace specwire::cli
