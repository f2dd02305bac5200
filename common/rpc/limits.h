// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "absl/time/time.h"
#include "common/metrics/metrics.h"

namespace specwire {

// Limits that servers and channels share. They are set on both sides: a
// keepalive that the other side does not expect gets a connection cut.

// Largest message. The largest that the protocol has are a 4 MiB text and
// 1048576 token ids of up to 5 bytes.
inline constexpr int kMaxMessageBytes = 8 << 20;
// Largest header block of a call.
inline constexpr int kMaxMetadataBytes = 16 << 10;
// Calls at once on one connection.
inline constexpr int kMaxConcurrentStreams = 4096;

// A channel pings this often, with or without calls, and gives the connection
// up if the answer takes longer than the timeout.
inline constexpr absl::Duration kChannelKeepaliveTime = absl::Seconds(2);
// A peer starved of its processor for a second is not gone: shorter timeouts
// cut sound streams on busy machines.
inline constexpr absl::Duration kChannelKeepaliveTimeout = absl::Seconds(3);
// A server pings its clients more patiently: they may be anybody's.
inline constexpr absl::Duration kServerKeepaliveTime = absl::Seconds(5);
inline constexpr absl::Duration kServerKeepaliveTimeout = absl::Seconds(5);
// Time for a new connection to shake hands; one that says nothing is closed.
inline constexpr absl::Duration kHandshakeTimeout = absl::Seconds(10);
// Connections at once, see Listener.
inline constexpr int kMaxConnections = 4096;
// A coordinator's connection takes no new calls after about this time, and the
// client makes a new one: so certificates are shown again. Running calls stay.
inline constexpr absl::Duration kMaxConnectionAge = absl::Hours(1);
// How soon a change of a certificate's or a key's file is seen.
inline constexpr absl::Duration kCertificateRefresh = absl::Seconds(2);
// Pings that come faster than this count as strikes.
inline constexpr absl::Duration kServerMinPingInterval = absl::Seconds(1);

// Bounds of one stream's outgoing queue, and who counts what goes out.
struct StreamLimits {
  size_t max_queued_messages = 1024;
  size_t max_queued_bytes = 16 << 20;
  // Null: nobody does.
  Counter* sent_bytes = nullptr;
};

}  // namespace specwire
