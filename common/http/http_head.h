// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace specwire {

// The headers of a request's head, in order: names as sent, values without the
// white space around them and otherwise as sent. `head` has the request line,
// the headers and the empty line.
//
// None if a line does not end with CR LF, a name is no token with a colon right
// behind it, or a value has control characters (RFC 9112, sections 2.2 and 5):
// the library drops or mends such lines, and a proxy that reads them otherwise
// would take one request for two. It also decodes percent signs in values,
// which nobody else does.
//
// Thread safety: any thread.
std::optional<std::vector<std::pair<std::string, std::string>>> ParseHeaders(
    absl::string_view head);

}  // namespace specwire
