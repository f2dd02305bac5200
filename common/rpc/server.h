// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/host_port.h"
#include "common/rpc/limits.h"
#include "grpcpp/channel.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/security/server_credentials.h"

namespace specwire {

struct RpcServerOptions {
  // HOST:PORT; port 0 takes a free one.
  std::string listen = "127.0.0.1:0";
  int max_receive_message_bytes = kMaxMessageBytes;
  int max_send_message_bytes = kMaxMessageBytes;
  int max_metadata_bytes = kMaxMetadataBytes;
  int max_concurrent_streams = kMaxConcurrentStreams;
  // See Listener.
  int max_connections = kMaxConnections;
  absl::Duration handshake_timeout = kHandshakeTimeout;
  // A connection takes no new calls from then on; running ones stay.
  absl::Duration max_connection_age = absl::InfiniteDuration();
  absl::Duration keepalive_time = kServerKeepaliveTime;
  absl::Duration keepalive_timeout = kServerKeepaliveTimeout;
  absl::Duration min_ping_interval = kServerMinPingInterval;
  // Memory that gRPC may use for all calls of the server.
  int64_t memory_quota_bytes = int64_t{512} << 20;
  // After a shutdown's grace, when all calls have been cancelled, handlers have
  // this long to return.
  absl::Duration handler_timeout = absl::Seconds(5);
  // Serves grpc.reflection.v1alpha.
  bool reflection = true;
  // Insecure if null.
  std::shared_ptr<grpc::ServerCredentials> credentials;
};

// A gRPC server with its limits set, grpc.health.v1.Health and reflection.
//
// Thread safety: any thread.
// Lifetime: the services must outlive it. The destructor shuts down without
// grace.
class RpcServer {
 public:
  // Listens and serves `services`. UNAVAILABLE "cannot listen on ADDRESS: ..."
  // if the address is taken or is not this machine's; INVALID_ARGUMENT if it is
  // malformed. The whole server ("") is SERVING from the start; SetServing
  // tells it of single services.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const RpcServerOptions& options,
      const std::vector<grpc::Service*>& services);
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // The port that it listens on.
  int port() const { return port_; }
  // HOST:PORT with the host as it was given.
  const std::string& address() const { return address_; }

  // A channel to this server without a socket. No guard looks at its calls:
  // whoever uses it does.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Health of one service, for example "specwire.v1.VerifierService"; the empty
  // name is the whole server. A name that was never set is NOT_FOUND to who
  // asks.
  void SetServing(const std::string& service, bool serving);

  // Health becomes NOT_SERVING, new calls are refused, running ones have
  // `grace` to end and are then cancelled. Streams that the services hold open
  // end only if the services finish them. Returns DEADLINE_EXCEEDED, and leaves
  // the server to itself, if calls do not end within the handler timeout after
  // that: their handlers are at fault, and the process should exit without
  // running destructors. A second call returns the first one's result.
  absl::Status Shutdown(absl::Duration grace);

 private:
  struct State;
  RpcServer(std::shared_ptr<State> state,
            const HostPort& address,
            absl::Duration handler_timeout);

  // Shared with the thread that waits for calls to end.
  const std::shared_ptr<State> state_;
  const int port_;
  const std::string address_;
  const absl::Duration handler_timeout_;
};

}  // namespace specwire
