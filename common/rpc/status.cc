// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/status.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/draining.h"
#include "common/base/retry_delay.h"
#include "google/rpc/error_details.pb.h"

namespace specwire {
namespace {

constexpr size_t kMaxMessageLength = 2048;
constexpr size_t kMaxDetailsLength = 8192;
constexpr char kDomain[] = "specwire.dev";
constexpr char kDrainingReason[] = "DRAINING";
// The codes are 0 to UNAUTHENTICATED in both.
constexpr int kLastCode = 16;

// Cut where no UTF-8 character is split.
std::string Shortened(absl::string_view message) {
  if (message.size() <= kMaxMessageLength) return std::string(message);
  size_t end = kMaxMessageLength;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) {
    --end;
  }
  return std::string(message.substr(0, end));
}

google::rpc::RetryInfo RetryInfoOf(absl::Duration delay) {
  google::rpc::RetryInfo info;
  const int64_t milliseconds = absl::ToInt64Milliseconds(delay);
  info.mutable_retry_delay()->set_seconds(milliseconds / 1000);
  info.mutable_retry_delay()->set_nanos(
      static_cast<int32_t>(milliseconds % 1000) * 1000000);
  return info;
}

// Empty if there is nothing to tell beside code and message.
std::string Details(const absl::Status& status, const std::string& message) {
  google::rpc::Status details;
  if (const std::optional<absl::Duration> delay = RetryDelay(status)) {
    details.add_details()->PackFrom(RetryInfoOf(*delay));
  }
  if (IsDraining(status)) {
    google::rpc::ErrorInfo info;
    info.set_reason(kDrainingReason);
    info.set_domain(kDomain);
    details.add_details()->PackFrom(info);
  }
  if (details.details_size() == 0) return "";
  details.set_code(static_cast<int32_t>(status.code()));
  details.set_message(message);
  return details.SerializeAsString();
}

// Adds what is known of `details`, which a peer may have garbled.
absl::Status WithDetails(absl::Status status, const std::string& details) {
  google::rpc::Status parsed;
  if (details.empty() || details.size() > kMaxDetailsLength ||
      !parsed.ParseFromString(details)) {
    return status;
  }
  std::optional<absl::Duration> retry_delay;
  for (const google::protobuf::Any& detail : parsed.details()) {
    google::rpc::RetryInfo retry;
    google::rpc::ErrorInfo error;
    if (detail.UnpackTo(&retry) && retry.has_retry_delay() &&
        !retry_delay.has_value()) {
      retry_delay = absl::Seconds(retry.retry_delay().seconds()) +
                    absl::Nanoseconds(retry.retry_delay().nanos());
    } else if (detail.UnpackTo(&error) && error.reason() == kDrainingReason &&
               error.domain() == kDomain && absl::IsUnavailable(status)) {
      status = DrainingError(status.message());
    }
  }
  return retry_delay.has_value()
             ? WithRetryDelay(std::move(status), *retry_delay)
             : status;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message = Shortened(status.message());
  return grpc::Status(code, message, Details(status, message));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  const int code = static_cast<int>(status.error_code());
  const bool known = code >= 0 && code <= kLastCode;
  if (known && code == 0) return absl::OkStatus();
  return WithDetails(absl::Status(known ? static_cast<absl::StatusCode>(code)
                                        : absl::StatusCode::kUnknown,
                                  status.error_message()),
                     status.error_details());
}

}  // namespace specwire
