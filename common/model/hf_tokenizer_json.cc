// SPDX-License-Identifier: Apache-2.0
#include "common/model/hf_tokenizer_json.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/hf_pipeline.h"
#include "common/model/json_parts.h"
#include "common/text/byte_spelling.h"
#include "common/text/spelled_space.h"

namespace specwire {
namespace {

using nlohmann::json;

constexpr size_t kMaxTokens = size_t{1} << 20;
constexpr size_t kMaxMerges = size_t{1} << 22;
constexpr size_t kSpareHoles = 1024;

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, 64)), "\"");
}

struct AddedToken {
  std::string content;
  int32_t id;
  bool special;
  bool normalized;
};

class Reader {
 public:
  explicit Reader(absl::string_view path) : path_(path) {}

  absl::StatusOr<HfTokenizerJson> Read(absl::string_view text) {
    const std::map<std::string, JsonSink> sinks = {
        {"added_tokens",
         [this](const std::string& name, json value) {
           return TakeAdded(name, value);
         }},
        {"model/vocab",
         [this](const std::string& name, const json& value) {
           return TakeWord(name, value);
         }},
        {"model/merges",
         [this](const std::string& /*name*/, json value) {
           return TakeMerge(&value);
         }},
    };
    SPECWIRE_ASSIGN_OR_RETURN(root_, ReadJsonParts(path_, text, sinks));
    if (!root_.is_object()) return Error("", "is not an object");
    SPECWIRE_RETURN_IF_ERROR(CheckModel());
    SPECWIRE_RETURN_IF_ERROR(later_);
    SPECWIRE_RETURN_IF_ERROR(
        ReadHfPipeline(path_, root_, flags_, &result_.model));
    SPECWIRE_RETURN_IF_ERROR(PlaceTokens());
    SPECWIRE_RETURN_IF_ERROR(ReadUnknown());
    SPECWIRE_RETURN_IF_ERROR(ReadPostProcessor());
    return std::move(result_);
  }

 private:
  template <typename... Args>
  absl::Status Error(absl::string_view field, const Args&... args) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": ", field, field.empty() ? "" : ": ", args...));
  }

  absl::Status Unsupported(absl::string_view field, const json& value) const {
    return Error(field, ShortJson(value), " is not supported");
  }

  absl::StatusOr<int32_t> ReadId(absl::string_view field,
                                 const json& value) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= kMaxTokens) {
      return Error(
          field, ShortJson(value), " is not an id in [0, ", kMaxTokens, ")");
    }
    return static_cast<int32_t>(value.get<uint64_t>());
  }

  // Whether a flag is set, `absent` if it is absent or null.
  absl::StatusOr<bool> ReadFlag(absl::string_view field,
                                const json& value,
                                bool absent) const {
    if (value.is_null()) return absent;
    if (!value.is_boolean()) {
      return Error(field, ShortJson(value), " is neither true nor false");
    }
    return value.get<bool>();
  }

  // A model of another type has a vocabulary of another form; its type is the
  // error to report, so those of its elements wait.
  absl::Status Later(absl::Status status) {
    if (later_.ok()) later_ = std::move(status);
    return absl::OkStatus();
  }

  absl::Status TakeWord(const std::string& name, const json& value) {
    if (!later_.ok()) return absl::OkStatus();
    if (words_.size() >= kMaxTokens) {
      return Later(Error("model.vocab", "more than ", kMaxTokens, " tokens"));
    }
    const auto id = ReadId(absl::StrCat("model.vocab: ", Quoted(name)), value);
    if (!id.ok()) return Later(id.status());
    words_.emplace_back(name, *id);
    return absl::OkStatus();
  }

  absl::Status TakeMerge(json* value) {
    if (!later_.ok()) return absl::OkStatus();
    std::vector<std::string>& merges = result_.model.merges;
    const std::string field = absl::StrCat("model.merges[", merges.size(), "]");
    if (merges.size() >= kMaxMerges) {
      return Later(Error("model.merges", "more than ", kMaxMerges, " merges"));
    }
    if (value->is_string()) {
      merges.push_back(std::move(value->get_ref<std::string&>()));
    } else if (value->is_array() && value->size() == 2 &&
               (*value)[0].is_string() && (*value)[1].is_string()) {
      const std::string& left = (*value)[0].get_ref<const std::string&>();
      const std::string& right = (*value)[1].get_ref<const std::string&>();
      merges.push_back(absl::StrCat(left, " ", right));
    } else {
      return Later(Error(field, ShortJson(*value), " is not two tokens"));
    }
    const std::string& merge = merges.back();
    if (std::count(merge.begin(), merge.end(), ' ') != 1) {
      return Later(Error(
          field, Quoted(merge), " is not two tokens with a space between"));
    }
    return absl::OkStatus();
  }

  absl::Status TakeAdded(const std::string& name, const json& value) {
    const std::string field =
        name.empty() ? absl::StrCat("added_tokens[", added_.size(), "]")
                     : "added_tokens";
    const json& content = JsonMember(value, "content");
    if (!name.empty() || !content.is_string()) {
      return Error(field, ShortJson(value), " is not a token");
    }
    AddedToken token;
    token.content = content.get<std::string>();
    SPECWIRE_ASSIGN_OR_RETURN(
        token.id, ReadId(absl::StrCat(field, ".id"), JsonMember(value, "id")));
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
      SPECWIRE_ASSIGN_OR_RETURN(
          const bool set,
          ReadFlag(
              absl::StrCat(field, ".", flag), JsonMember(value, flag), false));
      if (set) {
        return Error(field,
                     flag,
                     " is not supported (token ",
                     Quoted(token.content),
                     ")");
      }
    }
    SPECWIRE_ASSIGN_OR_RETURN(token.special,
                              ReadFlag(absl::StrCat(field, ".special"),
                                       JsonMember(value, "special"),
                                       false));
    SPECWIRE_ASSIGN_OR_RETURN(token.normalized,
                              ReadFlag(absl::StrCat(field, ".normalized"),
                                       JsonMember(value, "normalized"),
                                       !token.special));
    if (added_.size() >= kMaxTokens) {
      return Error("added_tokens", "more than ", kMaxTokens, " tokens");
    }
    added_.push_back(std::move(token));
    return absl::OkStatus();
  }

  absl::Status CheckModel() {
    const json& model = JsonMember(root_, "model");
    const json& type = JsonMember(model, "type");
    if (type != "BPE") {
      return Error("model.type", ShortJson(type), " is not \"BPE\"");
    }
    // Their elements have gone to their sinks.
    if (!JsonMember(model, "vocab").is_object()) {
      return Error("model.vocab", "is not an object");
    }
    if (!JsonMember(model, "merges").is_array()) {
      return Error("model.merges", "is not a list");
    }
    const json& added = JsonMember(root_, "added_tokens");
    if (!added.is_array() && !added.is_null()) {
      return Error("added_tokens", "is not a list");
    }
    const json& dropout = JsonMember(model, "dropout");
    if (!dropout.is_null() && dropout != 0) {
      return Unsupported("model.dropout", dropout);
    }
    for (const char* name :
         {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const json& affix = JsonMember(model, name);
      if (!affix.is_null() && affix != "") {
        return Unsupported(absl::StrCat("model.", name), affix);
      }
    }
    SPECWIRE_ASSIGN_OR_RETURN(
        flags_.byte_fallback,
        ReadFlag(
            "model.byte_fallback", JsonMember(model, "byte_fallback"), false));
    SPECWIRE_ASSIGN_OR_RETURN(
        flags_.fuse_unk,
        ReadFlag("model.fuse_unk", JsonMember(model, "fuse_unk"), false));
    SPECWIRE_ASSIGN_OR_RETURN(
        flags_.ignore_merges,
        ReadFlag(
            "model.ignore_merges", JsonMember(model, "ignore_merges"), false));
    return absl::OkStatus();
  }

  absl::Status CheckSize(size_t size) const {
    const size_t num_tokens = words_.size() + added_.size();
    if (size == 0) return Error("model.vocab", "has no tokens");
    if (size <= 2 * num_tokens + kSpareHoles) return absl::OkStatus();
    return Error("model.vocab",
                 "id ",
                 size - 1,
                 " is too high for ",
                 num_tokens,
                 " tokens");
  }

  // Puts every token at its id.
  absl::Status PlaceTokens() {
    int32_t last = -1;
    for (const auto& [text, id] : words_) last = std::max(last, id);
    for (const AddedToken& token : added_) last = std::max(last, token.id);
    const auto size = static_cast<size_t>(last + 1);
    SPECWIRE_RETURN_IF_ERROR(CheckSize(size));
    TokenizerModel& model = result_.model;
    model.tokens.resize(size);
    model.types.assign(size, static_cast<int32_t>(TokenType::kUnused));
    absl::flat_hash_map<std::string, int32_t> ids;
    for (auto& [text, id] : words_) {
      if (!ids.emplace(text, id).second) {
        return Error("model.vocab", Quoted(text), " is there twice");
      }
      const TokenType type = WordType(text);
      SPECWIRE_RETURN_IF_ERROR(Place("model.vocab", std::move(text), id, type));
    }
    for (const AddedToken& token : added_) {
      SPECWIRE_RETURN_IF_ERROR(PlaceAdded(token, &ids));
    }
    for (size_t id = 0; id < size; ++id) {
      if (IsType(id, TokenType::kUnused)) {
        model.tokens[id] = absl::StrCat("[PAD", id, "]");
      }
    }
    return absl::OkStatus();
  }

  TokenType WordType(absl::string_view text) const {
    const auto hex = [&](size_t at) {
      return absl::ascii_isxdigit(static_cast<unsigned char>(text[at])) &&
             !absl::ascii_islower(static_cast<unsigned char>(text[at]));
    };
    const bool byte = flags_.byte_fallback && text.size() == 6 &&
                      absl::StartsWith(text, "<0x") && hex(3) && hex(4) &&
                      text[5] == '>';
    return byte ? TokenType::kByte : TokenType::kNormal;
  }

  bool IsType(size_t id, TokenType type) const {
    return result_.model.types[id] == static_cast<int32_t>(type);
  }

  absl::Status Place(absl::string_view field,
                     std::string text,
                     int32_t id,
                     TokenType type) {
    const auto at = static_cast<size_t>(id);
    std::string& token = result_.model.tokens[at];
    if (!IsType(at, TokenType::kUnused)) {
      return Error(
          field, Quoted(text), " has the id of ", Quoted(token), ", ", id);
    }
    token = std::move(text);
    result_.model.types[at] = static_cast<int32_t>(type);
    return absl::OkStatus();
  }

  absl::Status PlaceAdded(const AddedToken& token,
                          absl::flat_hash_map<std::string, int32_t>* ids) {
    const TokenType type =
        token.special ? TokenType::kControl : TokenType::kUserDefined;
    SPECWIRE_RETURN_IF_ERROR(CheckAdded(token));
    const auto [it, added] = ids->emplace(token.content, token.id);
    const auto at = static_cast<size_t>(token.id);
    if (added) {
      SPECWIRE_RETURN_IF_ERROR(
          Place("added_tokens", token.content, token.id, type));
    } else if (it->second != token.id) {
      return Error("added_tokens",
                   Quoted(token.content),
                   " has the ids ",
                   it->second,
                   " and ",
                   token.id);
    } else if (!IsType(at, TokenType::kNormal)) {
      return Error(
          "added_tokens",
          Quoted(token.content),
          IsType(at, TokenType::kByte) ? " is a byte's" : " is there twice");
    } else {
      result_.model.types[at] = static_cast<int32_t>(type);
    }
    if (token.normalized) result_.model.normalized_ids.push_back(token.id);
    return absl::OkStatus();
  }

  // Texts that would be found, or decoded, otherwise than Tokenizer does it.
  absl::Status CheckAdded(const AddedToken& token) const {
    if (result_.model.kind == "llama") {
      if (token.normalized &&
          (absl::StrContains(token.content, " ") ||
           absl::StrContains(token.content, kSpelledSpace))) {
        return Error("added_tokens",
                     Quoted(token.content),
                     " has a space, and normalized is true");
      }
      return absl::OkStatus();
    }
    std::string bytes;
    if (BytesFromSpelling(token.content, &bytes) && bytes != token.content) {
      return Error("added_tokens",
                   Quoted(token.content),
                   " reads as other bytes in the byte-level spelling");
    }
    return absl::OkStatus();
  }

  absl::Status ReadUnknown() {
    const json& unk = JsonMember(JsonMember(root_, "model"), "unk_token");
    if (unk.is_null()) return absl::OkStatus();
    TokenizerModel& model = result_.model;
    if (!unk.is_string()) return Error("model.unk_token", "is not a text");
    const std::optional<int32_t> id =
        result_.Find(unk.get_ref<const std::string&>());
    if (!id.has_value()) {
      return Error("model.unk_token", ShortJson(unk), " is not a token");
    }
    size_t num_bytes = 0;
    if (model.kind == "llama") {
      num_bytes = static_cast<size_t>(
          std::count(model.types.begin(),
                     model.types.end(),
                     static_cast<int32_t>(TokenType::kByte)));
    } else {
      num_bytes = NumByteTokens();
    }
    // With all bytes there, nothing is unknown.
    if (num_bytes == 256 && model.kind == "gpt2") return absl::OkStatus();
    if (num_bytes < 256 && (model.kind == "gpt2" || !flags_.fuse_unk)) {
      return Error("model.unk_token",
                   ShortJson(unk),
                   " stands for single bytes or characters, which is not "
                   "supported");
    }
    model.unk_id = *id;
    int32_t& type = model.types[static_cast<size_t>(*id)];
    if (type == static_cast<int32_t>(TokenType::kControl)) {
      type = static_cast<int32_t>(TokenType::kUnknown);
    }
    return absl::OkStatus();
  }

  // Of byte-level BPE.
  size_t NumByteTokens() const {
    std::vector<bool> seen(256);
    std::string bytes;
    for (size_t id = 0; id < result_.model.tokens.size(); ++id) {
      if (IsType(id, TokenType::kNormal) &&
          BytesFromSpelling(result_.model.tokens[id], &bytes) &&
          bytes.size() == 1) {
        seen[static_cast<unsigned char>(bytes[0])] = true;
      }
    }
    return static_cast<size_t>(std::count(seen.begin(), seen.end(), true));
  }

  absl::Status ReadPostProcessor() {
    const json& processor = JsonMember(root_, "post_processor");
    bool had_template = false;
    for (const json& step : HfSteps(processor, "processors")) {
      // It changes offsets only.
      if (JsonMember(step, "type") == "ByteLevel") continue;
      if (JsonMember(step, "type") != "TemplateProcessing" || had_template) {
        return Unsupported("post_processor", processor);
      }
      had_template = true;
      SPECWIRE_RETURN_IF_ERROR(ReadTemplate(step));
    }
    return absl::OkStatus();
  }

  // One special token before the text at most, and nothing after it.
  absl::Status ReadTemplate(const json& step) {
    const json& single = JsonMember(step, "single");
    const auto refuse = [&] { return Unsupported("post_processor", single); };
    if (!single.is_array() || single.empty() || single.size() > 2) {
      return refuse();
    }
    if (JsonMember(JsonMember(single.back(), "Sequence"), "id") != "A")
      return refuse();
    if (single.size() == 1) return absl::OkStatus();
    const json& name = JsonMember(JsonMember(single[0], "SpecialToken"), "id");
    if (!name.is_string()) return refuse();
    const json& ids = JsonMember(JsonMember(JsonMember(step, "special_tokens"),
                                            name.get<std::string>().c_str()),
                                 "ids");
    if (!ids.is_array() || ids.size() != 1) return refuse();
    SPECWIRE_ASSIGN_OR_RETURN(const int32_t id,
                              ReadId("post_processor", ids[0]));
    const auto at = static_cast<size_t>(id);
    if (at >= result_.model.tokens.size() || IsType(at, TokenType::kUnused)) {
      return Error("post_processor", "id ", id, " has no token");
    }
    result_.first_id = id;
    return absl::OkStatus();
  }

  const absl::string_view path_;
  json root_;
  absl::Status later_;
  std::vector<std::pair<std::string, int32_t>> words_;
  std::vector<AddedToken> added_;
  HfModelFlags flags_;
  HfTokenizerJson result_;
};

}  // namespace

std::optional<int32_t> HfTokenizerJson::Find(absl::string_view text) const {
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    if (model.tokens[id] == text &&
        model.types[id] != static_cast<int32_t>(TokenType::kUnused)) {
      return static_cast<int32_t>(id);
    }
  }
  return std::nullopt;
}

absl::StatusOr<HfTokenizerJson> ReadHfTokenizerJson(absl::string_view path,
                                                    absl::string_view text) {
  return Reader(path).Read(text);
}

}  // namespace specwire
