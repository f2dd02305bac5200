// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/json_input.h"

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace specwire::coordinator {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDepth = 32;
// Names that a message repeats are cut.
constexpr size_t kMaxNameBytes = 64;
// Of a value: its place in an array, which grows by copying into a new one of
// twice the size.
constexpr size_t kValueBytes = 48;
// Of an object, an array or a string beside it.
constexpr size_t kNodeBytes = 80;
// Of a name: that too, and the nodes of the object's map and of the checker's
// set.
constexpr size_t kNameBytes = 192;

// Sees the parts of a text as they are read, and stops at what is wrong.
class Checker final : public nlohmann::json_sax<Json> {
 public:
  const std::string& problem() const { return problem_; }

  bool null() override { return Scalar(); }
  bool boolean(bool /*value*/) override { return Scalar(); }
  bool number_integer(number_integer_t /*value*/) override { return Scalar(); }
  bool number_unsigned(number_unsigned_t /*value*/) override {
    return Scalar();
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return std::isfinite(value) ? Scalar() : Fail("a number is out of range");
  }
  bool string(string_t& /*value*/) override { return Node() && Scalar(); }
  bool binary(binary_t& /*value*/) override { return Scalar(); }
  bool start_object(size_t /*size*/) override {
    names_.emplace_back();
    return Node() && Deeper();
  }
  bool key(string_t& name) override {
    if (names_.back().insert(name).second) return Node();
    return Fail(absl::StrCat("the name \"",
                             name.substr(0, kMaxNameBytes),
                             "\" stands twice in one object"));
  }
  bool end_object() override {
    names_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(size_t /*size*/) override {
    return depth_ > 0 ? Node() && Deeper() : Fail("must be a JSON object");
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(size_t position,
                   const std::string& /*token*/,
                   const Json::exception& /*error*/) override {
    return Fail(absl::StrCat("malformed JSON at byte ", position));
  }

 private:
  bool Deeper() {
    return ++depth_ <= kMaxDepth ||
           Fail(absl::StrCat("more than ", kMaxDepth, " levels deep"));
  }
  bool Scalar() {
    if (depth_ == 0) return Fail("must be a JSON object");
    return ++num_scalars_ <= kMaxJsonNumbers ||
           Fail(absl::StrCat("more than ", kMaxJsonNumbers, " numbers"));
  }
  bool Node() {
    return ++num_nodes_ <= kMaxJsonNodes ||
           Fail(absl::StrCat("more than ",
                             kMaxJsonNodes,
                             " strings, names, objects and arrays"));
  }
  bool Fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }

  size_t depth_ = 0;
  int num_scalars_ = 0;
  int num_nodes_ = 0;
  std::vector<std::set<std::string>> names_;
  std::string problem_;
};

absl::Status MustBe(const std::string& name, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat(name, ": must be ", what));
}

absl::Status OutOfRange(const Json& value, const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", value.dump(), " is no ", kInt64Name));
}

}  // namespace

absl::Status CheckJsonObject(const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  Checker checker;
  if (Json::sax_parse(text, &checker)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("body: ", checker.problem()));
}

size_t JsonMemory(absl::string_view text) {
  // The text's strings are there as they are read, in what is made of them, in
  // the request, as that is sent, as it comes, and as it is parsed.
  size_t bytes = 6 * text.size();
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      in_string = !in_string;
      bytes += in_string ? kNodeBytes : 0;
    } else if (in_string) {
      i += c == '\\' ? 1 : 0;
    } else if (c == ',') {
      bytes += kValueBytes;
    } else if (c == '{' || c == '[') {
      bytes += kValueBytes + kNodeBytes;
    } else if (c == ':') {
      bytes += kNameBytes;
    }
  }
  return bytes;
}

absl::StatusOr<Json> ParseJsonObject(const std::string& text) {
  SPECWIRE_RETURN_IF_ERROR(CheckJsonObject(text));
  if (text.empty()) return Json::object();
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return MustBe("body", "a JSON object");
  return json;
}

absl::StatusOr<int64_t> ToInteger(const Json& value, const std::string& name) {
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() >
          static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return OutOfRange(value, name);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    // Beyond 2^53 a double is not the number that was written.
    if (number == std::floor(number) && std::abs(number) <= 0x1p53) {
      return static_cast<int64_t>(number);
    }
    if (std::abs(number) >= 0x1p63) return OutOfRange(value, name);
    if (number == std::floor(number)) {
      return MustBe(name, "written without point and exponent beyond 2^53");
    }
  }
  return MustBe(name, "a whole number");
}

absl::StatusOr<int32_t> ToInt32(const Json& value, const std::string& name) {
  SPECWIRE_ASSIGN_OR_RETURN(const int64_t number, ToInteger(value, name));
  if (number < std::numeric_limits<int32_t>::min() ||
      number > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", number, " is out of range"));
  }
  return static_cast<int32_t>(number);
}

absl::StatusOr<float> ToFloat(const Json& value, const std::string& name) {
  if (!value.is_number()) return MustBe(name, "a number");
  const double number = value.get<double>();
  if (std::abs(number) > std::numeric_limits<float>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", number, " is out of range"));
  }
  return static_cast<float>(number);
}

const Json* JsonFields::Find(const std::string& name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

absl::StatusOr<std::optional<bool>> JsonFields::Bool(
    const std::string& name) const {
  const Json* const value = Find(name);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return MustBe(name, "true or false");
  return std::optional<bool>(value->get<bool>());
}

absl::StatusOr<std::optional<int64_t>> JsonFields::Integer(
    const std::string& name) const {
  const Json* const value = Find(name);
  if (value == nullptr) return std::optional<int64_t>();
  SPECWIRE_ASSIGN_OR_RETURN(const int64_t number, ToInteger(*value, name));
  return std::optional<int64_t>(number);
}

absl::StatusOr<std::optional<int32_t>> JsonFields::Int32(
    const std::string& name) const {
  const Json* const value = Find(name);
  if (value == nullptr) return std::optional<int32_t>();
  SPECWIRE_ASSIGN_OR_RETURN(const int32_t number, ToInt32(*value, name));
  return std::optional<int32_t>(number);
}

absl::StatusOr<std::optional<float>> JsonFields::Float(
    const std::string& name) const {
  const Json* const value = Find(name);
  if (value == nullptr) return std::optional<float>();
  SPECWIRE_ASSIGN_OR_RETURN(const float number, ToFloat(*value, name));
  return std::optional<float>(number);
}

absl::StatusOr<std::optional<std::string>> JsonFields::String(
    const std::string& name) const {
  const Json* const value = Find(name);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return MustBe(name, "a string");
  return std::optional<std::string>(value->get<std::string>());
}

}  // namespace specwire::coordinator
