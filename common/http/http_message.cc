// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_message.h"

#include "common/text/printable.h"
#include "nlohmann/json.hpp"

namespace specwire {
namespace {

// Errors may repeat what a client sent, and are shown on terminals.
std::string Shown(absl::string_view text) { return Printable(text, "\n"); }

nlohmann::json OrNull(absl::string_view text) {
  return text.empty() ? nlohmann::json() : nlohmann::json(Shown(text));
}

// OpenAI's names, by which its client chooses what to raise and to retry.
const char* ErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

HttpResponse HttpError(int status,
                       absl::string_view message,
                       absl::string_view param,
                       absl::string_view code) {
  const nlohmann::json json = {{"error",
                                {{"message", Shown(message)},
                                 {"type", ErrorType(status)},
                                 {"param", OrNull(param)},
                                 {"code", OrNull(code)}}}};
  HttpResponse response;
  response.status = status;
  response.content_type = "application/json";
  response.body = json.dump();
  return response;
}

}  // namespace specwire
