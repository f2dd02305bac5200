// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/rpc/relay.h"

namespace specwire {

// Conditions from a text: fields of LinkConditions by commas, in any order,
// those that are true or false by name alone, the others with a value, as in
// "delay=5ms,jitter=500us,rate=8000,blackhole". An empty text is a sound link.
// INVALID_ARGUMENT, naming `field` and the part, if it is none; whether values
// are in range Relay::SetConditions says.
absl::StatusOr<LinkConditions> ParseLinkConditions(absl::string_view text,
                                                   absl::string_view field);

}  // namespace specwire
