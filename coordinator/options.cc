// SPDX-License-Identifier: Apache-2.0
#include "coordinator/options.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/drafting/messages.h"

namespace specwire::coordinator {
namespace {

absl::Status CheckRange(absl::string_view name,
                        int64_t value,
                        int64_t low,
                        int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": ", value, " is out of range; must be ", low, " to ", high));
}

absl::Status CheckPositive(absl::string_view name, absl::Duration value) {
  if (value > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": must be more than 0"));
}

}  // namespace

absl::Status ValidateOptions(const CoordinatorOptions& options) {
  SPECWIRE_RETURN_IF_ERROR(ParseHostPort(options.listen, "listen").status());
  if (!options.http.empty()) {
    SPECWIRE_RETURN_IF_ERROR(ParseHostPort(options.http, "http").status());
  }
  if (options.http_tls && !options.security.tls.enabled()) {
    return absl::InvalidArgumentError(
        "http_tls: needs --tls_cert, --tls_key and --tls_ca");
  }
  SPECWIRE_RETURN_IF_ERROR(CheckRange(
      "run_length", options.speculation.run_length, 1, kMaxRunLength));
  SPECWIRE_RETURN_IF_ERROR(CheckRange("window",
                                      options.speculation.window,
                                      options.speculation.run_length,
                                      kMaxWindow));
  if (options.speculation.patience < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        "patience_us: must be -1 (without limit) or at least 0");
  }
  SPECWIRE_RETURN_IF_ERROR(
      CheckPositive("drafter_deadline", options.drafter_deadline));
  SPECWIRE_RETURN_IF_ERROR(
      CheckPositive("stream_deadline", options.stream_deadline));
  SPECWIRE_RETURN_IF_ERROR(
      CheckRange("max_requests", options.max_concurrent_requests, 1, 65536));
  SPECWIRE_RETURN_IF_ERROR(CheckRange("credit", options.credit, 1, 65536));
  SPECWIRE_RETURN_IF_ERROR(CheckPositive("client_stall", options.client_stall));
  SPECWIRE_RETURN_IF_ERROR(CheckRange("workers", options.num_workers, 1, 256));
  SPECWIRE_RETURN_IF_ERROR(
      CheckPositive("report_interval", options.report_interval));
  if (options.max_silence <= options.report_interval) {
    return absl::InvalidArgumentError(
        "max_silence: must be longer than report_interval");
  }
  if (options.max_stall <= options.report_interval) {
    return absl::InvalidArgumentError(
        "max_stall: must be longer than report_interval");
  }
  SPECWIRE_RETURN_IF_ERROR(
      CheckPositive("probe_deadline", options.probe_deadline));
  if (options.grace < absl::ZeroDuration()) {
    return absl::InvalidArgumentError("grace: must not be negative");
  }
  return absl::OkStatus();
}

}  // namespace specwire::coordinator
