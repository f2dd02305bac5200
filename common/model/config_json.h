// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace specwire {

// A small JSON object of a model's folder, with getters that check what the
// file, which is untrusted, says. A key that is null counts as absent.
//
// Thread safety: const methods from any thread.
class ConfigJson {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 20;

  // The object in a file. NOT_FOUND if there is no such file; INVALID_ARGUMENT,
  // naming it, if it is larger than kMaxBytes, no JSON object or beyond a limit
  // of ReadJsonParts.
  static absl::StatusOr<ConfigJson> Read(const std::string& path);

  bool Has(absl::string_view key) const;
  // INVALID_ARGUMENT naming the key if it is absent, of another type or out of
  // [min, max].
  absl::StatusOr<int> Int(absl::string_view key, int min, int max) const;
  absl::StatusOr<float> Float(absl::string_view key,
                              double min,
                              double max) const;
  absl::StatusOr<std::string> String(absl::string_view key) const;
  // The same, but absent is `otherwise`.
  absl::StatusOr<int> IntOr(absl::string_view key,
                            int min,
                            int max,
                            int otherwise) const;
  absl::StatusOr<float> FloatOr(absl::string_view key,
                                double min,
                                double max,
                                float otherwise) const;
  absl::StatusOr<bool> BoolOr(absl::string_view key, bool otherwise) const;
  absl::StatusOr<std::string> StringOr(absl::string_view key,
                                       absl::string_view otherwise) const;
  // Empty if absent; at most `limit`. A single number counts as a list of one
  // in Ints.
  absl::StatusOr<std::vector<std::string>> Strings(absl::string_view key,
                                                   size_t limit) const;
  absl::StatusOr<std::vector<int>> Ints(absl::string_view key,
                                        int min,
                                        int max,
                                        size_t limit) const;
  // The object under a key; nothing if absent.
  absl::StatusOr<std::optional<ConfigJson>> Object(absl::string_view key) const;

  // "<path>: <key>: <problem>".
  absl::Status Error(absl::string_view key, absl::string_view problem) const;

 private:
  ConfigJson(std::string path, std::string prefix, nlohmann::json object)
      : path_(std::move(path)),
        prefix_(std::move(prefix)),
        object_(std::move(object)) {}

  // Null if absent.
  const nlohmann::json* Find(absl::string_view key) const;

  std::string path_;
  // Where the object stands in the file: "" or "key.".
  std::string prefix_;
  nlohmann::json object_;
};

}  // namespace specwire
