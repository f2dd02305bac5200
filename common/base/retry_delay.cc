// SPDX-License-Identifier: Apache-2.0
#include "common/base/retry_delay.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace specwire {
namespace {

// Milliseconds in decimal. A form of our own: this library knows no protobuf.
constexpr absl::string_view kPayload = "specwire.dev/retry_delay_ms";
constexpr absl::Duration kLeast = absl::Milliseconds(1);
constexpr absl::Duration kMost = absl::Hours(1);

}  // namespace

absl::Status WithRetryDelay(absl::Status status, absl::Duration delay) {
  const absl::Duration kept = std::clamp(delay, kLeast, kMost);
  status.SetPayload(kPayload,
                    absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(
                        absl::Ceil(kept, absl::Milliseconds(1))))));
  return status;
}

std::optional<absl::Duration> RetryDelay(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  if (!payload.has_value()) return std::nullopt;
  int64_t milliseconds = 0;
  if (!absl::SimpleAtoi(std::string(*payload), &milliseconds)) {
    return std::nullopt;
  }
  return absl::Milliseconds(milliseconds);
}

}  // namespace specwire
