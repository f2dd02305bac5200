// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/rpc/limits.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"

namespace specwire {

struct RpcChannelOptions {
  int max_receive_message_bytes = kMaxMessageBytes;
  int max_send_message_bytes = kMaxMessageBytes;
  absl::Duration keepalive_time = kChannelKeepaliveTime;
  absl::Duration keepalive_timeout = kChannelKeepaliveTimeout;
  // Pause before the first and between later attempts to connect.
  absl::Duration min_reconnect_backoff = absl::Milliseconds(100);
  absl::Duration max_reconnect_backoff = absl::Seconds(1);
  // Insecure if null.
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // With TLS: the name that the peer's certificate must carry, whatever its
  // address is. Empty: the host of the address.
  std::string peer_name;
  // Sent with every call if it is not empty.
  std::string api_key;
};

// A channel to one address ("host:port") with a connection of its own: no other
// channel of the process shares it or its backoff. It connects when first used,
// ignores proxies, and notices within seconds that the peer has vanished.
// A call on it never waits for a connection unless it asks to
// (set_wait_for_ready); set a deadline on every call that is not a session.
std::shared_ptr<grpc::Channel> MakeChannel(
    const std::string& address, const RpcChannelOptions& options = {});

}  // namespace specwire
