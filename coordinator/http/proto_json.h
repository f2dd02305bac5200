// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace specwire::coordinator {

// Reads proto3 JSON. INVALID_ARGUMENT "FIELD: what is wrong", where FIELD is a
// path inside `field`, or `field` itself where the problem has no field of its
// own; inside "body" paths stand alone. REQUIRES: CheckJsonObject(json) is OK.
absl::Status ParseProtoJson(const std::string& json,
                            absl::string_view field,
                            google::protobuf::Message* message);

}  // namespace specwire::coordinator
