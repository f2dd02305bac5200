// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "common/http/http_message.h"

namespace specwire::coordinator {

// The answer to a request that failed: the status code that belongs to it, the
// error in OpenAI's shape, with the field that the message begins with as
// `param`, and Retry-After where the status names a delay. REQUIRES: not OK.
HttpResponse ToHttpError(const absl::Status& status);

}  // namespace specwire::coordinator
