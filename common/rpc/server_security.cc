// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/server_security.h"

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"

namespace specwire {
namespace {

constexpr int kMostConnections = 1 << 20;

}  // namespace

absl::Status CheckServerSecurity(const ServerSecurity& security,
                                 const std::string& listen,
                                 absl::string_view certificate_name) {
  if (security.max_connections < 1 ||
      security.max_connections > kMostConnections) {
    return absl::InvalidArgumentError(absl::StrCat("--max_connections: ",
                                                   security.max_connections,
                                                   " is not between 1 and ",
                                                   kMostConnections));
  }
  SPECWIRE_RETURN_IF_ERROR(CheckTlsFiles(
      security.tls, /*needs_certificate=*/true, certificate_name));
  SPECWIRE_ASSIGN_OR_RETURN(const HostPort address,
                            ParseHostPort(listen, "--listen"));
  if (security.tls.enabled() || security.allow_insecure ||
      IsLoopback(address.host)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--listen: others can reach ",
      address.ToString(),
      ", and without TLS whoever does is let in: give --tls_cert, --tls_key "
      "and --tls_ca, or listen on 127.0.0.1, or say --allow_insecure if the "
      "network is trusted"));
}

std::string DescribeSecurity(const ServerSecurity& security) {
  return security.tls.enabled() ? absl::StrCat("TLS with ", security.tls.cert)
                                : "no TLS";
}

}  // namespace specwire
