// SPDX-License-Identifier: Apache-2.0
#include "common/model/hf_tokenizer.h"

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/hf_tokenizer_json.h"
#include "common/model/json_parts.h"
#include "common/model/mapped_file.h"
#include "common/text/utf8.h"

namespace specwire {
namespace {

using nlohmann::json;

constexpr size_t kMaxJsonBytes = size_t{128} << 20;
constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

template <typename... Args>
absl::Status Invalid(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

struct SmallFile {
  std::string path;
  std::unique_ptr<MappedFile> file;

  absl::string_view text() const {
    const absl::Span<const uint8_t> bytes = file->bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

absl::StatusOr<SmallFile> Open(const std::string& folder,
                               const char* name,
                               size_t limit) {
  SmallFile file;
  file.path = absl::StrCat(folder, "/", name);
  SPECWIRE_ASSIGN_OR_RETURN(file.file, MappedFile::Open(file.path));
  const size_t size = file.file->bytes().size();
  if (size > limit) {
    return Invalid(file.path, ": ", size, " bytes exceed the limit of ", limit);
  }
  return file;
}

// The same, nothing if there is no such file.
absl::StatusOr<std::optional<SmallFile>> OpenIfThere(const std::string& folder,
                                                     const char* name,
                                                     size_t limit) {
  absl::StatusOr<SmallFile> file = Open(folder, name, limit);
  if (absl::IsNotFound(file.status())) return std::optional<SmallFile>();
  if (!file.ok()) return file.status();
  return std::optional<SmallFile>(*std::move(file));
}

// A small JSON object and the file that it is from; empty without the file.
struct Settings {
  std::string path;
  json values;

  const json* Find(const char* name) const {
    const auto it = values.find(name);
    return it == values.end() ? nullptr : &*it;
  }
  absl::Status Error(absl::string_view field, absl::string_view problem) const {
    return Invalid(path, ": ", field, ": ", problem);
  }
};

absl::StatusOr<Settings> ReadSettings(const std::string& folder,
                                      const char* name) {
  SPECWIRE_ASSIGN_OR_RETURN(const std::optional<SmallFile> file,
                            OpenIfThere(folder, name, kMaxJsonBytes));
  Settings settings;
  settings.values = json::object();
  if (!file.has_value()) return settings;
  settings.path = file->path;
  // The added tokens once more, by id; tokenizer.json has them.
  const std::map<std::string, JsonSink> sinks = {
      {"added_tokens_decoder",
       [](const std::string& /*name*/, const json& /*value*/) {
         return absl::OkStatus();
       }}};
  SPECWIRE_ASSIGN_OR_RETURN(settings.values,
                            ReadJsonParts(file->path, file->text(), sinks));
  if (!settings.values.is_object()) {
    return Invalid(file->path, ": is not an object");
  }
  return settings;
}

// The text of a token: itself, or the content of an object; nothing for null.
absl::StatusOr<std::optional<std::string>> TokenText(const Settings& settings,
                                                     const char* name,
                                                     const json& value) {
  if (value.is_null()) return std::optional<std::string>();
  const json* text = &value;
  if (value.is_object()) {
    const auto it = value.find("content");
    if (it != value.end()) text = &*it;
  }
  if (text->is_string()) {
    return std::optional<std::string>(text->get<std::string>());
  }
  return settings.Error(name, "is not a token");
}

// The token that the first of these files to name it says.
absl::StatusOr<std::optional<int32_t>> SpecialId(
    const HfTokenizerJson& tokenizer,
    const Settings& config,
    const Settings& tokens_map,
    const char* name) {
  for (const Settings* settings : {&config, &tokens_map}) {
    const json* value = settings->Find(name);
    if (value == nullptr) continue;
    SPECWIRE_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                              TokenText(*settings, name, *value));
    if (!text.has_value()) return std::optional<int32_t>();
    const std::optional<int32_t> id = tokenizer.Find(*text);
    if (id.has_value()) return id;
    return settings->Error(
        name,
        absl::StrCat("\"",
                     absl::CHexEscape(absl::string_view(*text).substr(0, 64)),
                     "\" is not a token of tokenizer.json"));
  }
  return std::optional<int32_t>();
}

absl::StatusOr<std::optional<bool>> Flag(const Settings& config,
                                         const char* name) {
  const json* value = config.Find(name);
  if (value == nullptr || value->is_null()) return std::optional<bool>();
  if (value->is_boolean()) return std::optional<bool>(value->get<bool>());
  return config.Error(name, "is neither true nor false");
}

absl::Status ReadEnds(const std::string& folder,
                      const Settings& config,
                      HfTokenizerJson* tokenizer) {
  SPECWIRE_ASSIGN_OR_RETURN(const Settings tokens_map,
                            ReadSettings(folder, "special_tokens_map.json"));
  TokenizerModel& model = tokenizer->model;
  SPECWIRE_ASSIGN_OR_RETURN(
      model.bos_id, SpecialId(*tokenizer, config, tokens_map, "bos_token"));
  SPECWIRE_ASSIGN_OR_RETURN(
      model.eos_id, SpecialId(*tokenizer, config, tokens_map, "eos_token"));
  SPECWIRE_ASSIGN_OR_RETURN(const std::optional<bool> add_eos,
                            Flag(config, "add_eos_token"));
  if (add_eos.value_or(false)) {
    return config.Error("add_eos_token", "true is not supported");
  }
  // It says nothing: transformers 5 goes by tokenizer.json alone.
  SPECWIRE_RETURN_IF_ERROR(Flag(config, "add_bos_token").status());
  if (!tokenizer->first_id.has_value()) return absl::OkStatus();
  if (model.bos_id.has_value() && model.bos_id != tokenizer->first_id) {
    return Invalid(folder,
                   "/tokenizer.json: post_processor: begins a text with token ",
                   *tokenizer->first_id,
                   ", but bos_token is ",
                   *model.bos_id);
  }
  model.bos_id = tokenizer->first_id;
  model.add_bos = true;
  return absl::OkStatus();
}

// The template in tokenizer_config.json; empty if there is none.
absl::StatusOr<std::string> TemplateOf(const Settings& config) {
  constexpr char kField[] = "chat_template";
  const json* value = config.Find(kField);
  if (value == nullptr || value->is_null()) return std::string();
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_array()) {
    return config.Error(kField, "is neither a text nor a list");
  }
  std::optional<std::string> found;
  for (const json& item : *value) {
    if (!item.is_object() || !item.contains("name") ||
        !item.contains("template") || !item["name"].is_string() ||
        !item["template"].is_string()) {
      return config.Error(kField, "has an element without name or template");
    }
    if (item["name"] != "default") continue;
    if (found.has_value()) {
      return config.Error(kField, "\"default\" is there twice");
    }
    found = item["template"].get<std::string>();
  }
  return found.value_or("");
}

absl::StatusOr<std::string> ReadTemplate(const std::string& folder,
                                         const Settings& config) {
  SPECWIRE_ASSIGN_OR_RETURN(
      const std::optional<SmallFile> file,
      OpenIfThere(folder, "chat_template.jinja", kMaxTemplateBytes));
  if (!file.has_value()) return TemplateOf(config);
  if (!IsValidUtf8(file->text())) {
    return Invalid(file->path, ": is not UTF-8");
  }
  return std::string(file->text());
}

}  // namespace

absl::StatusOr<TokenizerModel> ReadHfTokenizer(const std::string& folder) {
  SPECWIRE_ASSIGN_OR_RETURN(const SmallFile file,
                            Open(folder, "tokenizer.json", kMaxJsonBytes));
  SPECWIRE_ASSIGN_OR_RETURN(HfTokenizerJson tokenizer,
                            ReadHfTokenizerJson(file.path, file.text()));
  SPECWIRE_ASSIGN_OR_RETURN(const Settings config,
                            ReadSettings(folder, "tokenizer_config.json"));
  SPECWIRE_RETURN_IF_ERROR(ReadEnds(folder, config, &tokenizer));
  SPECWIRE_ASSIGN_OR_RETURN(tokenizer.model.chat_template,
                            ReadTemplate(folder, config));
  return std::move(tokenizer.model);
}

}  // namespace specwire
