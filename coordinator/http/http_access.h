// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/http/http_message.h"
#include "coordinator/api_keys.h"

namespace specwire::coordinator {

// Who may call what over HTTP.
struct HttpAccess {
  // The coordinator's gRPC has TLS: who has no key needs a certificate.
  bool tls = false;
  // The HTTP port has TLS, or only this machine reaches it, or
  // --allow_insecure: keys and texts may travel.
  bool safe = true;
  // Only this machine reaches the port, and its users need no key: who asks by
  // another name than localhost or an address is refused, or any site could
  // give its own name this machine's address and have its pages call.
  bool local_only = false;
  // Users' keys and operators'; null if there are none. Not owned.
  const ApiKeys* keys = nullptr;
  const ApiKeys* operator_keys = nullptr;
};

// Who may drain nodes over HTTP.
enum class DrainAccess {
  // Nobody: the coordinator knows no operators' keys.
  kNo,
  // Who has an operator's key.
  kWithKey,
  // The client, which has an operator's certificate.
  kYes,
};

// Whether the client of `request` may drain nodes, whatever key it sends.
DrainAccess DrainAccessOf(const HttpRequest& request, const HttpAccess& access);
// "no", "key", "yes".
absl::string_view DrainAccessName(DrainAccess access);

// Whether `request` may call a method, for example
// "/specwire.v1.GenerationService/Generate". Rules are those of CheckAccess,
// but what only tells of the cluster is for users too, and DrainNode needs an
// operator's key or certificate. UNAUTHENTICATED or PERMISSION_DENIED.
absl::Status CheckHttpAccess(const HttpRequest& request,
                             absl::string_view method,
                             const HttpAccess& access);

// The same as a route asks for it. `access` must outlive the route.
std::function<std::optional<HttpResponse>(const HttpRequest&)> AdmitTo(
    std::string method, const HttpAccess* access);

}  // namespace specwire::coordinator
