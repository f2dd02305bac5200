// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/status.h"

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace specwire {
namespace {

constexpr size_t kMaxMessageLength = 2048;
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

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      Shortened(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  const int code = static_cast<int>(status.error_code());
  const bool known = code >= 0 && code <= kLastCode;
  return absl::Status(
      known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
      status.error_message());
}

}  // namespace specwire
