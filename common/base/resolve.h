// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/host_port.h"

namespace specwire {

// The addresses of a name, as they are dialled ("10.0.0.7:7070"): sorted, none
// twice, at most kMaxResolvedAddresses. Those of IPv4 only, if it has any: a
// machine must not count twice because it has both kinds. Asks the system,
// which may take long: not for threads that others wait for. UNAVAILABLE if the
// name is unknown or nobody answers.
inline constexpr int kMaxResolvedAddresses = 64;
absl::StatusOr<std::vector<std::string>> ResolveAddresses(const HostPort& name);

}  // namespace specwire
