// SPDX-License-Identifier: Apache-2.0
#include "common/model/json_parts.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/bounded_json.h"

namespace specwire {
namespace {

using nlohmann::json;

constexpr JsonLimits kLimits = {/*piece_bytes=*/size_t{1} << 20, /*depth=*/32};
constexpr size_t kMaxValues = size_t{1} << 14;

// Builds the document bottom-up on a stack of open containers.
class Handler final : public JsonEvents {
 public:
  Handler(absl::string_view path, const std::map<std::string, JsonSink>& sinks)
      : path_(path), sinks_(sinks) {}

  json Take() { return std::move(root_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return Add(value);
  }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool StartObject() override { return Open(json::object()); }
  bool StartArray() override { return Open(json::array()); }
  bool EndObject() override { return Close(); }
  bool EndArray() override { return Close(); }
  bool key(string_t& name) override {
    open_.back().name = std::move(name);
    return true;
  }

 private:
  struct Container {
    json value;
    // Of the member that is being read.
    std::string name;
    // Where the elements go; null where they stay.
    const JsonSink* sink;
    // The values that there were when it was opened.
    size_t num_values;
  };

  // The names that lead to the value that comes next.
  std::string Path() const {
    std::string field;
    for (const Container& container : open_) {
      if (container.name.empty()) continue;
      absl::StrAppend(&field, field.empty() ? "" : "/", container.name);
    }
    return field;
  }

  std::string Field() const override {
    return absl::CHexEscape(Path().substr(0, 128));
  }

  bool Count() {
    if (++num_values_ <= kMaxValues) return true;
    return Fail(absl::StrCat(
        path_, ": ", Field(), ": more than ", kMaxValues, " values"));
  }

  bool Open(json value) {
    if (!Count()) return false;
    const JsonSink* sink = nullptr;
    if ((open_.size() == 1 || open_.size() == 2) && InObjects()) {
      sink = FindSink();
    }
    open_.push_back({std::move(value), "", sink, num_values_});
    return true;
  }

  // The sink of the container that is being opened, null if it has none.
  const JsonSink* FindSink() const {
    // A name with a slash, or none, would pass for another place.
    for (const Container& container : open_) {
      if (container.name.empty() || absl::StrContains(container.name, '/')) {
        return nullptr;
      }
    }
    const auto it = sinks_.find(Path());
    return it == sinks_.end() ? nullptr : &it->second;
  }

  bool InObjects() const {
    for (const Container& container : open_) {
      if (!container.value.is_object()) return false;
    }
    return true;
  }

  bool Close() {
    Container container = std::move(open_.back());
    open_.pop_back();
    return Put(std::move(container.value));
  }

  template <typename Value>
  bool Add(Value value) {
    return Count() && Put(json(std::move(value)));
  }

  // Puts a value that is whole where it belongs.
  bool Put(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Container& to = open_.back();
    if (to.sink != nullptr) {
      // What the element was made of is gone.
      num_values_ = to.num_values;
      absl::Status status = (*to.sink)(to.name, std::move(value));
      return status.ok() || Fail(std::string(status.message()));
    }
    if (to.value.is_array()) {
      to.value.push_back(std::move(value));
      return true;
    }
    if (!to.value.emplace(to.name, std::move(value)).second) {
      return Fail(absl::StrCat(path_, ": ", Field(), ": is there twice"));
    }
    return true;
  }

  const absl::string_view path_;
  const std::map<std::string, JsonSink>& sinks_;
  json root_;
  std::vector<Container> open_;
  size_t num_values_ = 0;
};

}  // namespace

absl::StatusOr<json> ReadJsonParts(
    absl::string_view path,
    absl::string_view text,
    const std::map<std::string, JsonSink>& sinks) {
  Handler handler(path, sinks);
  SPECWIRE_RETURN_IF_ERROR(ReadJson(path, text, kLimits, &handler));
  return handler.Take();
}

const json& JsonMember(const json& object, const char* name) {
  static const auto* const kNull = new json();
  if (!object.is_object()) return *kNull;
  const auto it = object.find(name);
  return it == object.end() ? *kNull : *it;
}

std::string ShortJson(const json& value) {
  std::string text = value.dump(
      -1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  constexpr size_t kLimit = 200;
  if (text.size() > kLimit) text = text.substr(0, kLimit) + "...";
  return text;
}

}  // namespace specwire
