// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/rpc/tls_files.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace specwire {

// Who makes a call.
struct Caller {
  // "/specwire.v1.ClusterService/Join".
  std::string path;
  // Value of the metadata of this name; empty if there is none.
  std::string authorization;
  // It has shown a certificate of the roots; always false without TLS.
  bool has_certificate = false;
  // The certificate's DNS names.
  std::vector<std::string> names;

  // True for methods of the service, for example "specwire.v1.DraftService".
  bool IsFor(absl::string_view service) const;
  // True if the certificate carries the name.
  bool HasName(absl::string_view name) const;
};

// Decides about a call before its first message is read and before any handler
// sees it. An error ends the call; it must not tell secrets. Called from any
// thread; must be quick.
using CallGuard = std::function<absl::Status(const Caller& caller)>;

// What a server asks of those who connect with TLS. A certificate that is shown
// is always verified.
enum class ClientCertificates { kRequired, kOptional };

// Server credentials over `files`, or without TLS if they are none. A null
// guard lets every call pass. Files that change are read again within
// kCertificateRefresh: new connections use the new ones.
// REQUIRES: CheckTlsFiles(files, true, ...) is OK.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    const TlsFiles& files, ClientCertificates certificates, CallGuard guard);

// For channels of the process, which share it; null if `files` are none. The
// peer's certificate must come from the roots and carry the channel's
// `peer_name`. Files are read again as above.
// REQUIRES: CheckTlsFiles(files, false, ...) is OK.
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(
    const TlsFiles& files);

}  // namespace specwire
