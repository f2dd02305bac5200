// SPDX-License-Identifier: Apache-2.0
#include "coordinator/access.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace specwire::coordinator {
namespace {

// Not Watch: what stays open is not for everybody.
constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kCluster[] = "specwire.v1.ClusterService";

absl::Status CheckName(const Caller& caller, absl::string_view name) {
  if (caller.HasName(name)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      caller.path, " is for who has a certificate with the name ", name));
}

// What this process says for others. A call from outside, whose peer is an
// address, does not say it.
std::string Told(const grpc::CallbackServerContext& context,
                 const std::string& peer,
                 const char* name) {
  for (const char* family : {"ipv4:", "ipv6:", "unix:"}) {
    if (absl::StartsWith(peer, family)) return "";
  }
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return "";
  return std::string(found->second.data(), found->second.size());
}

}  // namespace

std::string UserOf(const grpc::CallbackServerContext& context, bool keys) {
  const std::string peer = context.peer();
  std::string key = keys ? Told(context, peer, kForKey) : "";
  const auto authorization = context.client_metadata().find("authorization");
  if (keys && key.empty() && authorization != context.client_metadata().end()) {
    key =
        KeyDigest({authorization->second.data(), authorization->second.size()});
  }
  if (!key.empty()) return key;
  const std::string for_peer = Told(context, peer, kForPeer);
  return for_peer.empty() ? peer : for_peer;
}

absl::Status CheckAccess(const Caller& caller, bool tls, const ApiKeys* keys) {
  if (caller.path == kHealthCheck) return absl::OkStatus();
  if (caller.IsFor(kCluster)) {
    if (!tls) return absl::OkStatus();
    return CheckName(caller,
                     absl::EndsWith(caller.path, "/Join")
                         ? kNodeCertificate
                         : kOperatorCertificate);
  }
  if (keys != nullptr) return keys->Check(caller.authorization);
  if (!tls || caller.has_certificate) return absl::OkStatus();
  return absl::UnauthenticatedError(
      "this coordinator serves only who has a certificate: give --tls_cert and "
      "--tls_key");
}

}  // namespace specwire::coordinator
