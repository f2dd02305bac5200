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

// Has a request line that names a host, "GET http://HOST/PATH HTTP/1.1", as
// proxies are sent it, name the path alone, as the library reads it. The host
// then takes the place of the header's (RFC 9112, section 3.2.2): `host` is set
// to it, and to nothing where the line names none.
//
// False if it names a host that is empty or has a user's name.
bool TakeTargetHost(std::string* head, std::optional<std::string>* host);

}  // namespace specwire
