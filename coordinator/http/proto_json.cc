// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/proto_json.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "coordinator/http/json_input.h"
#include "google/protobuf/util/json_util.h"

namespace specwire::coordinator {
namespace {

// Values that a message repeats are cut.
constexpr size_t kMaxValueBytes = 64;

// What the library calls a type, in a client's words.
std::string TypeName(absl::string_view type) {
  constexpr std::pair<absl::string_view, absl::string_view> kNames[] = {
      {"TYPE_INT32", "32-bit integer"},
      {"TYPE_INT64", kInt64Name},
      {"TYPE_FLOAT", "32-bit number"},
      {"TYPE_DOUBLE", "number"},
      {"TYPE_BOOL", "true or false"},
      {"TYPE_STRING", "string"},
      {"TYPE_BYTES", "base64 string"}};
  for (const auto& [name, meaning] : kNames) {
    if (type == name) return std::string(meaning);
  }
  // "type.googleapis.com/specwire.v1.SamplingParams".
  return std::string(type.substr(type.rfind('.') + 1));
}

// Takes "(FIELD)" or "(FIELD) NAME", or "NAME", and ": " from the front.
std::string TakeField(absl::string_view* message) {
  const size_t end = message->find(": ");
  if (end == absl::string_view::npos) return "";
  absl::string_view field = message->substr(0, end);
  message->remove_prefix(end + 2);
  if (!absl::ConsumePrefix(&field, "(")) return std::string(field);
  const size_t close = field.find(')');
  if (close == absl::string_view::npos) return std::string(field);
  const absl::string_view name =
      absl::StripPrefix(field.substr(close + 1), " ");
  field = field.substr(0, close);
  return name.empty() ? std::string(field) : absl::StrCat(field, ".", name);
}

// What is wrong, in other words where the library's are of no use to who has
// only seen JSON.
std::string Problem(absl::string_view message) {
  constexpr absl::string_view kInvalid = "invalid value ";
  constexpr absl::string_view kType = " for type ";
  if (absl::StartsWith(message, "Cannot find field")) {
    return "there is no such field";
  }
  if (absl::StartsWith(message, "Root element must be")) {
    return "must be an object";
  }
  if (absl::StartsWith(message, "Proto field is not repeating")) {
    return "must not be an array";
  }
  const size_t type = message.rfind(kType);
  if (!absl::ConsumePrefix(&message, kInvalid) ||
      type == absl::string_view::npos) {
    return std::string(message);
  }
  const absl::string_view value = message.substr(0, type - kInvalid.size());
  const absl::string_view name =
      message.substr(type - kInvalid.size() + kType.size());
  if (name == "oneof") return std::string(value);
  return absl::StrCat(value.substr(0, kMaxValueBytes),
                      value.size() > kMaxValueBytes ? "..." : "",
                      " is no ",
                      TypeName(name));
}

}  // namespace

absl::Status ParseProtoJson(const std::string& json,
                            absl::string_view field,
                            google::protobuf::Message* message) {
  const auto status =
      google::protobuf::util::JsonStringToMessage(json, message);
  if (status.ok()) return absl::OkStatus();
  absl::string_view what(status.message().data(), status.message().size());
  std::string path = TakeField(&what);
  if (path.empty()) {
    path = std::string(field);
  } else if (field != "body") {
    path = absl::StrCat(field, ".", path);
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", Problem(what)));
}

}  // namespace specwire::coordinator
