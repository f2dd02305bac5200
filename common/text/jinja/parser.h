// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/chat_template_limits.h"
#include "common/text/jinja/ast.h"

namespace specwire::jinja {

// Parses a template of the Jinja subset that chat templates use: for, if, set,
// macro, generation, break, continue, raw, comments, and Jinja's expressions
// without **. INVALID_ARGUMENT, naming the line, for other tags and for what
// Jinja would refuse too; RESOURCE_EXHAUSTED beyond a limit. Filters, tests and
// functions are looked up when they are evaluated.
absl::StatusOr<Body> Parse(absl::string_view source,
                           const ChatTemplateLimits& limits);

}  // namespace specwire::jinja
