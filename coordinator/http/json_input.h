// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace specwire::coordinator {

// Numbers that one text may have (the longest prompt's ids, and some more), and
// strings, names, objects and arrays together, each of which takes far more
// memory than it has bytes.
inline constexpr int kMaxJsonNumbers = (1 << 20) + (1 << 16);
inline constexpr int kMaxJsonNodes = 1 << 17;

// "VALUE is no ..." where a field has 64 bits.
inline constexpr char kInt64Name[] =
    "whole number from -9223372036854775808 to 9223372036854775807";

// JSON from clients. INVALID_ARGUMENT unless `text` is one object in UTF-8, at
// most 32 deep, within the limits above, in which no name stands twice in one
// object and no number is beyond a double's range. An empty text stands for an
// empty object.
absl::Status CheckJsonObject(const std::string& text);
absl::StatusOr<nlohmann::json> ParseJsonObject(const std::string& text);

// What such a text may take while it is checked and parsed: far more than it
// has bytes where its values are small. It need not be well-formed.
size_t JsonMemory(absl::string_view text);

// Reads the fields of an object. A field that is null counts as absent; one of
// another type is INVALID_ARGUMENT "NAME: must be ...".
//
// Lifetime: the object outlives it.
class JsonFields {
 public:
  explicit JsonFields(const nlohmann::json* object) : object_(object) {}

  // Null if absent.
  const nlohmann::json* Find(const std::string& name) const;
  absl::StatusOr<std::optional<bool>> Bool(const std::string& name) const;
  // A whole number of 64 bits; also one that is written as 3.0.
  absl::StatusOr<std::optional<int64_t>> Integer(const std::string& name) const;
  absl::StatusOr<std::optional<int32_t>> Int32(const std::string& name) const;
  absl::StatusOr<std::optional<float>> Float(const std::string& name) const;
  absl::StatusOr<std::optional<std::string>> String(
      const std::string& name) const;

 private:
  const nlohmann::json* const object_;
};

// One value; `name` is for errors.
absl::StatusOr<int64_t> ToInteger(const nlohmann::json& value,
                                  const std::string& name);
absl::StatusOr<int32_t> ToInt32(const nlohmann::json& value,
                                const std::string& name);
absl::StatusOr<float> ToFloat(const nlohmann::json& value,
                              const std::string& name);

}  // namespace specwire::coordinator
