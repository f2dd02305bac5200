// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/http_access.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/rpc/tls_files.h"
#include "coordinator/access.h"
#include "coordinator/http/http_status.h"
#include "specwire/v1/generation.pb.h"

namespace specwire::coordinator {
namespace {

constexpr char kDrainNode[] = "/specwire.v1.ClusterService/DrainNode";
// Stands for all that users may call.
constexpr char kUserMethod[] = "/specwire.v1.GenerationService/Generate";

// True for localhost and addresses, with or without a port.
bool IsOwnName(absl::string_view host) {
  const auto consists_of = [](absl::string_view text, absl::string_view set) {
    return text.find_first_not_of(set) == absl::string_view::npos;
  };
  absl::string_view port;
  bool own = false;
  if (absl::StartsWith(host, "[")) {
    // An address of IPv6 stands in brackets.
    const size_t end = host.find(']');
    if (end == absl::string_view::npos) return false;
    own = end > 1 &&
          consists_of(host.substr(1, end - 1), "0123456789abcdefABCDEF:.");
    port = host.substr(end + 1);
  } else {
    const size_t end = std::min(host.find(':'), host.size());
    const absl::string_view name = host.substr(0, end);
    own = absl::EqualsIgnoreCase(name, "localhost") ||
          (!name.empty() &&
           absl::ascii_isdigit(static_cast<unsigned char>(name.front())) &&
           consists_of(name, "0123456789."));
    port = host.substr(end);
  }
  return own && (port.empty() || (port.front() == ':' &&
                                  consists_of(port.substr(1), "0123456789")));
}

absl::Status CheckOperator(const HttpRequest& request,
                           const HttpAccess& access) {
  switch (DrainAccessOf(request, access)) {
    case DrainAccess::kYes:
      return absl::OkStatus();
    case DrainAccess::kWithKey: {
      // Said here: a user's key, which others want, is of no use.
      const std::string authorization = request.Header("authorization");
      if (KeyDigest(authorization).empty()) {
        return absl::UnauthenticatedError(
            "authorization: this wants an operator's key, \"Bearer KEY\"");
      }
      if (access.operator_keys->Check(authorization).ok()) {
        return absl::OkStatus();
      }
      return absl::UnauthenticatedError(
          "authorization: the key is not an operator's");
    }
    case DrainAccess::kNo:
      break;
  }
  return absl::PermissionDeniedError(
      "over HTTP this is for operators, and this coordinator knows none: "
      "start it with --operator_keys FILE");
}

}  // namespace

DrainAccess DrainAccessOf(const HttpRequest& request,
                          const HttpAccess& access) {
  const auto& names = request.client->certificate_names();
  if (std::find(names.begin(), names.end(), kOperatorCertificate) !=
      names.end()) {
    return DrainAccess::kYes;
  }
  return access.operator_keys == nullptr ? DrainAccess::kNo
                                         : DrainAccess::kWithKey;
}

absl::string_view DrainAccessName(DrainAccess access) {
  switch (access) {
    case DrainAccess::kYes:
      return "yes";
    case DrainAccess::kWithKey:
      return "key";
    case DrainAccess::kNo:
      break;
  }
  return "no";
}

absl::Status CheckHttpAccess(const HttpRequest& request,
                             absl::string_view method,
                             const HttpAccess& access) {
  if (!access.safe) {
    return absl::PermissionDeniedError(
        "others can reach this port, and without TLS it serves nothing but "
        "/health, /ready and /metrics: start the coordinator with --http_tls, "
        "or with "
        "--allow_insecure if the network is trusted");
  }
  if (access.local_only && !IsOwnName(request.Header("host"))) {
    return absl::PermissionDeniedError(
        "host: this port is for this machine alone and asks for no key: call "
        "it localhost, or start the coordinator with --api_keys or "
        "--allow_insecure");
  }
  if (method == kDrainNode) return CheckOperator(request, access);
  Caller caller;
  caller.path = kUserMethod;
  caller.authorization = request.Header("authorization");
  caller.has_certificate = request.client->has_certificate();
  caller.names = request.client->certificate_names();
  const absl::Status status = CheckAccess(caller, access.tls, access.keys);
  // An operator may do what users may.
  if (!status.ok() && access.operator_keys != nullptr &&
      access.operator_keys->Check(caller.authorization).ok()) {
    return absl::OkStatus();
  }
  return status;
}

std::function<std::optional<HttpResponse>(const HttpRequest&)> AdmitTo(
    std::string method, const HttpAccess* access) {
  return [method = std::move(method),
          access](const HttpRequest& request) -> std::optional<HttpResponse> {
    const absl::Status status = CheckHttpAccess(request, method, *access);
    if (status.ok()) return std::nullopt;
    return ToHttpError(status);
  };
}

}  // namespace specwire::coordinator
