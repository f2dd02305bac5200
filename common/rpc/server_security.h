// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/rpc/limits.h"
#include "common/rpc/tls_files.h"

namespace specwire {

// How a server is protected, as its flags say.
struct ServerSecurity {
  TlsFiles tls;
  // Serves without TLS even where other machines reach it.
  bool allow_insecure = false;
  // See Listener.
  int max_connections = kMaxConnections;
};

// INVALID_ARGUMENT, naming the flag, unless the files are right for a role of
// this certificate name and, without them, `listen` (HOST:PORT) is on loopback
// or others are let in on purpose.
absl::Status CheckServerSecurity(const ServerSecurity& security,
                                 const std::string& listen,
                                 absl::string_view certificate_name);

// For the log: "TLS with FILE" or "no TLS".
std::string DescribeSecurity(const ServerSecurity& security);

}  // namespace specwire
