// SPDX-License-Identifier: Apache-2.0
#include "common/base/draining.h"

#include "absl/strings/cord.h"

namespace specwire {
namespace {

// A form of our own: this library knows no protobuf.
constexpr absl::string_view kPayload = "specwire.dev/draining";

}  // namespace

absl::Status DrainingError(absl::string_view message) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kPayload, absl::Cord("1"));
  return status;
}

bool IsDraining(const absl::Status& status) {
  return absl::IsUnavailable(status) && status.GetPayload(kPayload).has_value();
}

}  // namespace specwire
