// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/rpc/tls_files.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"
#include "specwire/v1/cluster.grpc.pb.h"
#include "specwire/v1/generation.grpc.pb.h"

namespace specwire::cli {

// Longest wait for a connection to one coordinator, and for a short answer.
inline constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
inline constexpr absl::Duration kAnswerTimeout = absl::Seconds(30);

// The flags that every client command has.
struct ClientFlags {
  std::string coordinators = "127.0.0.1:7070";
  TlsFiles tls;
  std::string api_key_file;
  bool allow_insecure = false;
};
void AddClientFlags(CLI::App* app, ClientFlags* flags);
// The addresses of the flag, at least one. INVALID_ARGUMENT if it is malformed.
absl::StatusOr<std::vector<std::string>> ParseCoordinators(
    const ClientFlags& flags);

// How the flags say that coordinators are reached. The API key is that of
// --api_key_file, or else of the environment variable SPECWIRE_API_KEY.
// INVALID_ARGUMENT for files that are not right, and for a key that would cross
// the network in the clear.
absl::StatusOr<RpcChannelOptions> MakeChannelOptions(const ClientFlags& flags);
// The part without a key.
RpcChannelOptions CoordinatorChannelOptions(const TlsFiles& tls);

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
      const std::string& address,
      absl::Duration timeout,
      const RpcChannelOptions& options);

  const std::string& address() const { return address_; }
  // Those of the connection, for another one.
  const RpcChannelOptions& channel_options() const { return channel_options_; }
  // True if the connection is gone, or goes within `timeout`: the coordinator
  // has died, or is ending.
  bool WaitLost(absl::Duration timeout);

  v1::GenerationService::Stub* generation() { return generation_.get(); }
  v1::ClusterService::Stub* cluster() { return cluster_.get(); }

 private:
  Client(std::string address, RpcChannelOptions options);

  const std::string address_;
  const RpcChannelOptions channel_options_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::GenerationService::Stub> generation_;
  std::unique_ptr<v1::ClusterService::Stub> cluster_;
};

// Makes the call on `context` end after `timeout`.
void SetTimeout(absl::Duration timeout, grpc::ClientContext* context);

// What a command does that asks one thing and prints the answer: connects,
// makes `call`, which must be answered within kAnswerTimeout, and has `print`
// write to standard output. Returns the exit code.
int AskOnce(const ClientFlags& flags,
            absl::FunctionRef<grpc::Status(Client*, grpc::ClientContext*)> call,
            absl::FunctionRef<void()> print);

// Prints why Client::Connect failed; returns the exit code.
int FailConnect(const absl::Status& status);

// Prints why a call failed and what to do; returns the exit code.
int FailCall(const grpc::Status& status);

}  // namespace specwire::cli
