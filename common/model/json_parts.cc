// SPDX-License-Identifier: Apache-2.0
#include "common/model/json_parts.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace specwire {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxValues = size_t{1} << 14;
constexpr size_t kMaxPieceBytes = size_t{1} << 20;

template <typename... Args>
absl::Status Invalid(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

// The parser keeps copies of what it has read since the last string began.
absl::Status CheckPieces(absl::string_view path, absl::string_view text) {
  bool in_string = false;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i - start > kMaxPieceBytes) {
      return Invalid(path,
                     ": byte ",
                     start,
                     in_string ? ": a string" : ": a stretch without a string",
                     " of more than ",
                     kMaxPieceBytes,
                     " bytes");
    }
    if (in_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      in_string = !in_string;
      start = i;
    }
  }
  return absl::OkStatus();
}

// Builds the document bottom-up on a stack of open containers.
class Handler : public nlohmann::json_sax<json> {
 public:
  Handler(absl::string_view path, const std::map<std::string, JsonSink>& sinks)
      : path_(path), sinks_(sinks) {}

  const absl::Status& status() const { return status_; }
  json Take() { return std::move(root_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return Add(value);
  }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*size*/) override { return Open(json::object()); }
  bool start_array(size_t /*size*/) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    open_.back().name = std::move(name);
    return true;
  }
  bool parse_error(size_t position,
                   const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return Fail(Invalid(path_, ": byte ", position, ": malformed JSON"));
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

  bool Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
    return false;
  }

  // The names that lead to the value that comes next.
  std::string Field() const {
    std::string field;
    for (const Container& container : open_) {
      if (container.name.empty()) continue;
      absl::StrAppend(&field, field.empty() ? "" : "/", container.name);
    }
    return field;
  }

  std::string ShortField() const {
    return absl::CHexEscape(Field().substr(0, 128));
  }

  bool Count() {
    if (++num_values_ <= kMaxValues) return true;
    return Fail(Invalid(
        path_, ": ", ShortField(), ": more than ", kMaxValues, " values"));
  }

  bool Open(json value) {
    if (open_.size() >= kMaxDepth) {
      return Fail(Invalid(path_, ": ", ShortField(), ": too deep"));
    }
    if (!Count()) return false;
    const JsonSink* sink = nullptr;
    if ((open_.size() == 1 || open_.size() == 2) && InObjects()) {
      const auto it = sinks_.find(Field());
      if (it != sinks_.end()) sink = &it->second;
    }
    open_.push_back({std::move(value), "", sink, num_values_});
    return true;
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
    if (container.sink != nullptr) container.value = nullptr;
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
      return status.ok() || Fail(std::move(status));
    }
    if (to.value.is_array()) {
      to.value.push_back(std::move(value));
      return true;
    }
    if (!to.value.emplace(to.name, std::move(value)).second) {
      return Fail(Invalid(path_, ": ", ShortField(), ": is there twice"));
    }
    return true;
  }

  const absl::string_view path_;
  const std::map<std::string, JsonSink>& sinks_;
  absl::Status status_;
  json root_;
  std::vector<Container> open_;
  size_t num_values_ = 0;
};

}  // namespace

absl::StatusOr<json> ReadJsonParts(
    absl::string_view path,
    absl::string_view text,
    const std::map<std::string, JsonSink>& sinks) {
  SPECWIRE_RETURN_IF_ERROR(CheckPieces(path, text));
  Handler handler(path, sinks);
  if (!json::sax_parse(text.begin(), text.end(), &handler)) {
    return handler.status();
  }
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
