// SPDX-License-Identifier: Apache-2.0
#include "common/model/config_json.h"

#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/json_parts.h"
#include "common/model/mapped_file.h"

namespace specwire {
namespace {

using nlohmann::json;

// Longest string that an error shows of a file.
constexpr size_t kMaxShown = 64;

std::string TypeOf(const json& value) {
  return absl::StrCat("is ", value.type_name());
}

std::string OutOfRange(double value, double min, double max) {
  return absl::StrCat(value, " is outside [", min, ", ", max, "]");
}

}  // namespace

absl::StatusOr<ConfigJson> ConfigJson::Read(const std::string& path) {
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file,
                            MappedFile::Open(path));
  const auto bytes = file->bytes();
  if (bytes.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", bytes.size(), " bytes are above the limit of ", kMaxBytes));
  }
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()),
                               bytes.size());
  SPECWIRE_ASSIGN_OR_RETURN(json parsed, ReadJsonParts(path, text, {}));
  if (!parsed.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is not a JSON object"));
  }
  return ConfigJson(path, "", std::move(parsed));
}

const json* ConfigJson::Find(absl::string_view key) const {
  const auto it = object_.find(std::string(key));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool ConfigJson::Has(absl::string_view key) const {
  return Find(key) != nullptr;
}

absl::StatusOr<int> ConfigJson::Int(absl::string_view key,
                                    int min,
                                    int max) const {
  const json* const value = Find(key);
  if (value == nullptr) return Error(key, "is absent");
  if (!value->is_number_integer()) {
    return Error(key, absl::StrCat(TypeOf(*value), ", not an integer"));
  }
  // Unsigned numbers above the largest int64 turn negative in get<int64_t>.
  const double number = value->get<double>();
  if (!(number >= min && number <= max)) {
    return Error(key, OutOfRange(number, min, max));
  }
  return value->get<int>();
}

absl::StatusOr<float> ConfigJson::Float(absl::string_view key,
                                        double min,
                                        double max) const {
  const json* const value = Find(key);
  if (value == nullptr) return Error(key, "is absent");
  if (!value->is_number()) {
    return Error(key, absl::StrCat(TypeOf(*value), ", not a number"));
  }
  const double number = value->get<double>();
  if (!(number >= min && number <= max)) {
    return Error(key, OutOfRange(number, min, max));
  }
  return static_cast<float>(number);
}

absl::StatusOr<std::string> ConfigJson::String(absl::string_view key) const {
  const json* const value = Find(key);
  if (value == nullptr) return Error(key, "is absent");
  if (!value->is_string()) {
    return Error(key, absl::StrCat(TypeOf(*value), ", not a string"));
  }
  return value->get<std::string>();
}

absl::StatusOr<int> ConfigJson::IntOr(absl::string_view key,
                                      int min,
                                      int max,
                                      int otherwise) const {
  return Has(key) ? Int(key, min, max) : otherwise;
}

absl::StatusOr<float> ConfigJson::FloatOr(absl::string_view key,
                                          double min,
                                          double max,
                                          float otherwise) const {
  return Has(key) ? Float(key, min, max) : otherwise;
}

absl::StatusOr<bool> ConfigJson::BoolOr(absl::string_view key,
                                        bool otherwise) const {
  const json* const value = Find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) {
    return Error(key, absl::StrCat(TypeOf(*value), ", not a boolean"));
  }
  return value->get<bool>();
}

absl::StatusOr<std::string> ConfigJson::StringOr(
    absl::string_view key, absl::string_view otherwise) const {
  return Has(key) ? String(key) : std::string(otherwise);
}

absl::StatusOr<std::vector<std::string>> ConfigJson::Strings(
    absl::string_view key, size_t limit) const {
  std::vector<std::string> texts;
  const json* const value = Find(key);
  if (value == nullptr) return texts;
  if (!value->is_array() || value->size() > limit) {
    return Error(key,
                 absl::StrCat("is not a list of at most ", limit, " strings"));
  }
  for (const json& element : *value) {
    if (!element.is_string()) {
      return Error(key, absl::StrCat("an element ", TypeOf(element)));
    }
    texts.push_back(element.get<std::string>());
  }
  return texts;
}

absl::StatusOr<std::vector<int>> ConfigJson::Ints(absl::string_view key,
                                                  int min,
                                                  int max,
                                                  size_t limit) const {
  std::vector<int> numbers;
  const json* const value = Find(key);
  if (value == nullptr) return numbers;
  if (!value->is_array()) {
    SPECWIRE_ASSIGN_OR_RETURN(const int number, Int(key, min, max));
    return std::vector<int>{number};
  }
  if (value->size() > limit) {
    return Error(
        key,
        absl::StrCat(value->size(), " numbers are above the limit of ", limit));
  }
  for (const json& element : *value) {
    if (!element.is_number_integer()) {
      return Error(key, absl::StrCat("an element ", TypeOf(element)));
    }
    const double number = element.get<double>();
    if (!(number >= min && number <= max)) {
      return Error(key, OutOfRange(number, min, max));
    }
    numbers.push_back(element.get<int>());
  }
  return numbers;
}

absl::StatusOr<std::optional<ConfigJson>> ConfigJson::Object(
    absl::string_view key) const {
  const json* const value = Find(key);
  if (value == nullptr) return std::optional<ConfigJson>();
  if (!value->is_object()) {
    return Error(key, absl::StrCat(TypeOf(*value), ", not an object"));
  }
  return std::optional<ConfigJson>(
      ConfigJson(path_, absl::StrCat(prefix_, key, "."), *value));
}

absl::Status ConfigJson::Error(absl::string_view key,
                               absl::string_view problem) const {
  return absl::InvalidArgumentError(
      absl::StrCat(path_,
                   ": ",
                   prefix_,
                   absl::CHexEscape(key.substr(0, kMaxShown)),
                   ": ",
                   problem));
}

}  // namespace specwire
