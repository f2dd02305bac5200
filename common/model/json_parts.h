// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace specwire {

// Takes one element of a container: its name (empty in a list) and its value.
using JsonSink =
    std::function<absl::Status(const std::string& name, nlohmann::json value)>;

// Reads a JSON text whose large containers are taken element by element, so
// that no document of them is ever built, and returns what is left: the
// document in which the containers of `sinks` are empty.
//
// A sink's key is the path of a container, names joined by "/" ("model/vocab"),
// of at most two names. A sink that fails, with INVALID_ARGUMENT, ends the
// reading.
//
// Built on ReadJson. INVALID_ARGUMENT, naming `path` (the file's) and the byte
// or the field, if
// the text is not well-formed JSON in UTF-8, has a name twice in an object
// (those of sinks are the sinks' affair), is deeper than 32, or has a string
// (or a stretch without one) of more than 1 MiB; and if the document, or one
// element, has more than 16,384 values. So the memory that reading takes is
// bounded by a few MiB beside what the sinks keep.
absl::StatusOr<nlohmann::json> ReadJsonParts(
    absl::string_view path,
    absl::string_view text,
    const std::map<std::string, JsonSink>& sinks);

// The member of that name; null if there is none, or `object` is no object.
const nlohmann::json& JsonMember(const nlohmann::json& object,
                                 const char* name);

// A value for an error: short, and in ASCII.
std::string ShortJson(const nlohmann::json& value);

}  // namespace specwire
