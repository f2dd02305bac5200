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

}  // namespace

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
