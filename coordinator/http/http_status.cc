// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/http_status.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/retry_delay.h"

namespace specwire::coordinator {
namespace {

int HttpCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

// Messages begin with the field that is wrong: "stop.max_tokens: 0 is ...".
absl::string_view FieldOf(absl::string_view message) {
  const size_t end = message.find(": ");
  if (end == absl::string_view::npos) return "";
  const absl::string_view field = message.substr(0, end);
  const bool name = std::all_of(field.begin(), field.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
           c == '.' || c == '[' || c == ']';
  });
  return name && field != "body" ? field : absl::string_view();
}

// OpenAI's code where it has one.
std::string CodeOf(const absl::Status& status) {
  const absl::string_view message = status.message();
  if (absl::IsUnauthenticated(status)) return "invalid_api_key";
  if (absl::IsNotFound(status) && absl::StartsWith(message, "model")) {
    return "model_not_found";
  }
  if (absl::IsInvalidArgument(status) &&
      absl::StrContains(message, "the model's context is")) {
    return "context_length_exceeded";
  }
  return absl::AsciiStrToLower(absl::StatusCodeToString(status.code()));
}

}  // namespace

HttpResponse ToHttpError(const absl::Status& status) {
  HttpResponse response = HttpError(HttpCode(status.code()),
                                    status.message(),
                                    FieldOf(status.message()),
                                    CodeOf(status));
  if (const std::optional<absl::Duration> delay = RetryDelay(status)) {
    response.headers.emplace_back(
        "Retry-After",
        absl::StrCat(std::max<int64_t>(
            1, absl::ToInt64Seconds(absl::Ceil(*delay, absl::Seconds(1))))));
  }
  return response;
}

}  // namespace specwire::coordinator
