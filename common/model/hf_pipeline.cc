// SPDX-License-Identifier: Apache-2.0
#include "common/model/hf_pipeline.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/json_parts.h"
#include "common/text/pre_tokenizer.h"
#include "common/text/spelled_space.h"

namespace specwire {
namespace {

using nlohmann::json;

json ReplaceStep(const char* from, const char* to) {
  return {
      {"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

class PipelineReader {
 public:
  PipelineReader(absl::string_view path,
                 const json& root,
                 const HfModelFlags& flags,
                 TokenizerModel* model)
      : path_(path), root_(root), flags_(flags), model_(model) {}

  // What comes before and after the merges.
  absl::Status Read() {
    const json& decoder = JsonMember(root_, "decoder");
    if (JsonMember(decoder, "type") == "ByteLevel") return ReadByteLevel();
    return ReadSpelledSpaces();
  }

 private:
  template <typename... Args>
  absl::Status Error(absl::string_view field, const Args&... args) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": ", field, ": ", args...));
  }

  absl::Status Unsupported(absl::string_view field, const json& value) const {
    return Error(field, ShortJson(value), " is not supported");
  }

  absl::Status ReadByteLevel() {
    model_->kind = "gpt2";
    if (flags_.byte_fallback) {
      return Error("model.byte_fallback", "has no place in byte-level BPE");
    }
    const json& normalizer = JsonMember(root_, "normalizer");
    const std::vector<json> normalizers = HfSteps(normalizer, "normalizers");
    const bool nfc =
        normalizers.size() == 1 && normalizers[0] == json{{"type", "NFC"}};
    if (!normalizers.empty() && !nfc) {
      return Unsupported("normalizer", normalizer);
    }
    const json& pre_tokenizer = JsonMember(root_, "pre_tokenizer");
    std::string pattern;
    if (!ReadPattern(HfSteps(pre_tokenizer, "pretokenizers"), &pattern)) {
      return Unsupported("pre_tokenizer", pre_tokenizer);
    }
    model_->pre =
        std::string(PreTokenizer::FindName(pattern, flags_.ignore_merges, nfc));
    if (!model_->pre.empty()) return absl::OkStatus();
    return Error("pre_tokenizer",
                 ShortJson(pre_tokenizer),
                 nfc ? " with" : " without",
                 " NFC and with ignore_merges ",
                 flags_.ignore_merges ? "true" : "false",
                 " is not supported");
  }

  // The pattern by which these steps cut; false if they are none of the known.
  static bool ReadPattern(const std::vector<json>& steps,
                          std::string* pattern) {
    if (steps.empty()) return false;
    const json& last = steps.back();
    const json& use_regex = JsonMember(last, "use_regex");
    if (JsonMember(last, "type") != "ByteLevel" ||
        JsonMember(last, "add_prefix_space") != false ||
        !(use_regex.is_null() || use_regex.is_boolean())) {
      return false;
    }
    const bool gpt2 = use_regex != false;
    if (steps.size() == 1 && gpt2) {
      *pattern = std::string(PreTokenizer::Gpt2Pattern());
      return true;
    }
    if (steps.size() != 2) return false;
    const json& first = steps[0];
    if (gpt2) {
      *pattern = std::string(PreTokenizer::SingleDigitsPattern());
      return first == json{{"type", "Digits"}, {"individual_digits", true}};
    }
    const json& regex = JsonMember(JsonMember(first, "pattern"), "Regex");
    if (!regex.is_string()) return false;
    *pattern = regex.get<std::string>();
    return first == json{{"type", "Split"},
                         {"pattern", {{"Regex", *pattern}}},
                         {"behavior", "Isolated"},
                         {"invert", false}};
  }

  absl::Status ReadSpelledSpaces() {
    TokenizerModel& model = *model_;
    model.kind = "llama";
    if (!flags_.byte_fallback) {
      return Error("model.byte_fallback", "is not true");
    }
    if (flags_.ignore_merges) {
      return Error("model.ignore_merges",
                   "is supported in byte-level BPE only");
    }
    const std::string space(kSpelledSpace);
    const json spelled = ReplaceStep(" ", space.c_str());
    const json& normalizer = JsonMember(root_, "normalizer");
    const std::vector<json> normalizers = HfSteps(normalizer, "normalizers");
    const json& pre_tokenizer = JsonMember(root_, "pre_tokenizer");
    const std::vector<json> cuts = HfSteps(pre_tokenizer, "pretokenizers");
    if (normalizers.empty()) {
      if (!ReadMetaspace(cuts)) {
        return Unsupported("pre_tokenizer", pre_tokenizer);
      }
    } else {
      const json prepend = {{"type", "Prepend"}, {"prepend", space}};
      if (normalizers == std::vector<json>{prepend, spelled}) {
        model.leading_space = LeadingSpace::kStretch;
      } else if (normalizers != std::vector<json>{spelled}) {
        return Unsupported("normalizer", normalizer);
      }
      // There is no space left at which this could cut.
      const json at_spaces = {{"type", "Split"},
                              {"pattern", {{"String", " "}}},
                              {"behavior", "MergedWithPrevious"},
                              {"invert", false}};
      if (!cuts.empty() && cuts != std::vector<json>{at_spaces}) {
        return Unsupported("pre_tokenizer", pre_tokenizer);
      }
    }
    return CheckSpaceDecoder();
  }

  bool ReadMetaspace(const std::vector<json>& cuts) {
    if (cuts.size() != 1) return false;
    const json& scheme = JsonMember(cuts[0], "prepend_scheme");
    if (JsonMember(cuts[0], "type") != "Metaspace" ||
        JsonMember(cuts[0], "replacement") != std::string(kSpelledSpace) ||
        JsonMember(cuts[0], "split") != false) {
      return false;
    }
    LeadingSpace& space = model_->leading_space;
    if (scheme == "first") {
      space = LeadingSpace::kTextStart;
    } else if (scheme == "always") {
      space = LeadingSpace::kStretchWithout;
    } else if (scheme != "never") {
      return false;
    }
    return true;
  }

  // The decoder takes off the space that was added, and only then.
  absl::Status CheckSpaceDecoder() const {
    const json& decoder = JsonMember(root_, "decoder");
    const std::string space(kSpelledSpace);
    std::vector<json> expected = {ReplaceStep(space.c_str(), " "),
                                  {{"type", "ByteFallback"}},
                                  {{"type", "Fuse"}}};
    if (model_->leading_space != LeadingSpace::kNone) {
      expected.push_back(
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    if (HfSteps(decoder, "decoders") == expected) return absl::OkStatus();
    return Unsupported("decoder", decoder);
  }

  const absl::string_view path_;
  const json& root_;
  const HfModelFlags& flags_;
  TokenizerModel* const model_;
};

}  // namespace

std::vector<json> HfSteps(const json& value, const char* members) {
  if (value.is_null()) return {};
  if (JsonMember(value, "type") != "Sequence") return {value};
  const json& list = JsonMember(value, members);
  if (!list.is_array()) return {value};
  return std::vector<json>(list.begin(), list.end());
}

absl::Status ReadHfPipeline(absl::string_view path,
                            const json& root,
                            const HfModelFlags& flags,
                            TokenizerModel* model) {
  return PipelineReader(path, root, flags, model).Read();
}

}  // namespace specwire
