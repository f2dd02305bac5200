// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace specwire {

// A network address as flags and messages spell it: "host:port", with brackets
// around an IPv6 address ("[::1]:7070").
struct HostPort {
  // Name or address, without brackets.
  std::string host;
  // 0 to 65535.
  int port = 0;

  std::string ToString() const;
};

// Parses "host:port". INVALID_ARGUMENT names `field` and says what is wrong.
// The host must not be empty.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text,
                                       absl::string_view field);

// Parses a comma-separated list of 1 to 16 addresses with ports of 1 to 65535,
// none twice; returns them as they should be dialled.
absl::StatusOr<std::vector<std::string>> ParseAddressList(
    absl::string_view text, absl::string_view field);

// The same for targets: addresses, and names whose addresses are looked up
// again and again, "dns:///host:port".
absl::StatusOr<std::vector<std::string>> ParseTargetList(
    absl::string_view text, absl::string_view field);
// HOST:PORT of a "dns:///host:port"; nothing for an address.
std::optional<HostPort> NameOfTarget(absl::string_view target);

// True for localhost, 127.0.0.0/8 and ::1.
bool IsLoopback(absl::string_view host);

// Whether a server could listen at `address` now; if not, the error says why:
// "cannot listen on 127.0.0.1:7070: Address already in use". A name must be
// free at every address it resolves to.
absl::Status CheckCanListen(const HostPort& address);

}  // namespace specwire
