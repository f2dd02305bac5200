// SPDX-License-Identifier: Apache-2.0
#include "common/model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/config_json.h"

namespace specwire {
namespace {

using Limits = ModelLimits;

constexpr size_t kMaxEosIds = 64;
constexpr float kDefaultRopeTheta = 10000;
constexpr double kMaxRopeTheta = 1e12;

// What transformers' configuration class of a model_type assumes.
struct Family {
  absl::string_view model_type;
  // Our name for it.
  absl::string_view architecture;
  bool qkv_bias = false;
  bool qk_norm = false;
};

constexpr Family kFamilies[] = {
    {"llama", "llama"},
    {"mistral", "mistral"},
    {"qwen2", "qwen2", /*qkv_bias=*/true},
    {"qwen3", "qwen3", /*qkv_bias=*/false, /*qk_norm=*/true},
    {"gemma3_text", "gemma3", /*qkv_bias=*/false, /*qk_norm=*/true}};

bool IsGemma(const ModelConfig& config) {
  return config.architecture == "gemma3";
}

absl::Status ReadFamily(const ConfigJson& file, ModelConfig* config) {
  SPECWIRE_ASSIGN_OR_RETURN(const std::string model_type,
                            file.String("model_type"));
  std::string known;
  for (const Family& family : kFamilies) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", family.model_type);
    if (family.model_type != model_type) continue;
    config->architecture = std::string(family.architecture);
    config->qkv_bias = family.qkv_bias;
    config->qk_norm = family.qk_norm;
    return absl::OkStatus();
  }
  return file.Error("model_type",
                    absl::StrCat("\"",
                                 absl::CHexEscape(model_type.substr(0, 64)),
                                 "\" is not supported; supported: ",
                                 known));
}

// What the forward pass does not do must not be asked for by the file.
absl::Status RefuseUnsupported(const ConfigJson& file,
                               const ModelConfig& config) {
  // Qwen2's key says nothing: its queries, keys and values always have one.
  if (!config.qkv_bias) {
    SPECWIRE_ASSIGN_OR_RETURN(const bool bias,
                              file.BoolOr("attention_bias", false));
    if (bias) return file.Error("attention_bias", "true is not supported");
  }
  for (const char* key : {"mlp_bias", "use_bidirectional_attention"}) {
    SPECWIRE_ASSIGN_OR_RETURN(const bool asked, file.BoolOr(key, false));
    if (asked) return file.Error(key, "true is not supported");
  }
  for (const char* key :
       {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (file.Has(key)) return file.Error(key, "is not supported");
  }
  if (file.Has("quantization_config")) {
    return file.Error("quantization_config",
                      "is not supported; use the folder of the float weights, "
                      "or a GGUF file");
  }
  const bool gemma = IsGemma(config);
  const char* const key = gemma ? "hidden_activation" : "hidden_act";
  const char* const supported = gemma ? "gelu_pytorch_tanh" : "silu";
  SPECWIRE_ASSIGN_OR_RETURN(const std::string activation,
                            file.StringOr(key, supported));
  if (activation != supported) {
    return file.Error(key,
                      absl::StrCat("\"",
                                   absl::CHexEscape(activation.substr(0, 64)),
                                   "\" is not supported; supported: ",
                                   supported));
  }
  return absl::OkStatus();
}

absl::Status ReadSizes(const ConfigJson& file, ModelConfig* config) {
  SPECWIRE_ASSIGN_OR_RETURN(
      config->num_layers_in_file,
      file.Int("num_hidden_layers", 1, Limits::kMaxLayers));
  SPECWIRE_ASSIGN_OR_RETURN(
      config->hidden_size,
      file.Int("hidden_size", Limits::kMinWidth, Limits::kMaxHidden));
  SPECWIRE_ASSIGN_OR_RETURN(
      config->intermediate_size,
      file.Int(
          "intermediate_size", Limits::kMinWidth, Limits::kMaxIntermediate));
  SPECWIRE_ASSIGN_OR_RETURN(
      config->max_position_embeddings,
      file.Int("max_position_embeddings", 1, Limits::kMaxContext));
  SPECWIRE_ASSIGN_OR_RETURN(
      config->num_heads, file.Int("num_attention_heads", 1, Limits::kMaxHeads));
  SPECWIRE_ASSIGN_OR_RETURN(
      config->num_kv_heads,
      file.IntOr(
          "num_key_value_heads", 1, Limits::kMaxHeads, config->num_heads));
  if (!file.Has("head_dim") && config->hidden_size % config->num_heads != 0) {
    return file.Error("num_attention_heads",
                      absl::StrCat(config->num_heads,
                                   " does not divide the width ",
                                   config->hidden_size));
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      config->head_dim,
      file.IntOr("head_dim",
                 2,
                 Limits::kMaxHeadDim,
                 config->hidden_size / config->num_heads));
  SPECWIRE_RETURN_IF_ERROR(CheckSizes(
      *config, [&](absl::string_view field, absl::string_view problem) {
        return file.Error(field, problem);
      }));
  SPECWIRE_ASSIGN_OR_RETURN(config->rms_norm_eps,
                            file.FloatOr("rms_norm_eps", 1e-12, 1e-1, 1e-6F));
  return absl::OkStatus();
}

absl::Status ReadScaling(const ConfigJson& from, RopeScaling* scaling) {
  // The older name of the key is "type".
  const char* const key = from.Has("rope_type") ? "rope_type" : "type";
  SPECWIRE_ASSIGN_OR_RETURN(const std::string type,
                            from.StringOr(key, "default"));
  SPECWIRE_ASSIGN_OR_RETURN(const float rotated,
                            from.FloatOr("partial_rotary_factor", 0, 1, 1));
  if (rotated != 1) {
    return from.Error("partial_rotary_factor",
                      absl::StrCat(rotated, " is not supported"));
  }
  if (type == "default") return absl::OkStatus();
  if (type != "linear" && type != "llama3") {
    return from.Error(key,
                      absl::StrCat("\"",
                                   absl::CHexEscape(type.substr(0, 64)),
                                   "\" is not supported; supported: default, "
                                   "linear, llama3"));
  }
  SPECWIRE_ASSIGN_OR_RETURN(scaling->factor, from.Float("factor", 1, 1e6));
  scaling->kind = RopeScaling::Kind::kLinear;
  if (type == "linear") return absl::OkStatus();
  scaling->kind = RopeScaling::Kind::kLlama3;
  SPECWIRE_ASSIGN_OR_RETURN(scaling->low_freq_factor,
                            from.Float("low_freq_factor", 1e-3, 1e6));
  SPECWIRE_ASSIGN_OR_RETURN(scaling->high_freq_factor,
                            from.Float("high_freq_factor", 1e-3, 1e6));
  if (scaling->high_freq_factor <= scaling->low_freq_factor) {
    return from.Error("high_freq_factor", "is not above low_freq_factor");
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      scaling->original_max_position_embeddings,
      from.Int("original_max_position_embeddings", 1, Limits::kMaxContext));
  return absl::OkStatus();
}

// Theta and scaling as newer releases write them, in one object.
absl::Status ReadRopeParameters(const ConfigJson& from,
                                float* theta,
                                RopeScaling* scaling) {
  SPECWIRE_ASSIGN_OR_RETURN(
      *theta, from.FloatOr("rope_theta", 1, kMaxRopeTheta, *theta));
  return ReadScaling(from, scaling);
}

absl::Status ReadRope(const ConfigJson& file, ModelConfig* config) {
  const bool gemma = IsGemma(*config);
  SPECWIRE_ASSIGN_OR_RETURN(
      config->rope_theta,
      file.FloatOr(
          "rope_theta", 1, kMaxRopeTheta, gemma ? 1e6F : kDefaultRopeTheta));
  if (gemma) {
    SPECWIRE_ASSIGN_OR_RETURN(
        config->local_rope_theta,
        file.FloatOr(
            "rope_local_base_freq", 1, kMaxRopeTheta, kDefaultRopeTheta));
  }
  SPECWIRE_ASSIGN_OR_RETURN(const float rotated,
                            file.FloatOr("partial_rotary_factor", 0, 1, 1));
  if (rotated != 1) {
    return file.Error("partial_rotary_factor",
                      absl::StrCat(rotated, " is not supported"));
  }
  SPECWIRE_ASSIGN_OR_RETURN(const std::optional<ConfigJson> scaling,
                            file.Object("rope_scaling"));
  if (scaling.has_value()) {
    SPECWIRE_RETURN_IF_ERROR(ReadRopeParameters(
        *scaling, &config->rope_theta, &config->rope_scaling));
  }
  SPECWIRE_ASSIGN_OR_RETURN(const std::optional<ConfigJson> parameters,
                            file.Object("rope_parameters"));
  if (!parameters.has_value()) return absl::OkStatus();
  // Of one kind of layer each, or of all.
  SPECWIRE_ASSIGN_OR_RETURN(const std::optional<ConfigJson> full,
                            parameters->Object("full_attention"));
  SPECWIRE_ASSIGN_OR_RETURN(const std::optional<ConfigJson> local,
                            parameters->Object("sliding_attention"));
  if (local.has_value()) {
    RopeScaling of_local;
    config->local_rope_theta = kDefaultRopeTheta;
    SPECWIRE_RETURN_IF_ERROR(
        ReadRopeParameters(*local, &config->local_rope_theta, &of_local));
    if (of_local.kind != RopeScaling::Kind::kNone) {
      return local->Error("rope_type", "local layers have no scaling here");
    }
  }
  return ReadRopeParameters(full.has_value() ? *full : *parameters,
                            &config->rope_theta,
                            &config->rope_scaling);
}

// Which layers the family makes local where the file does not list them.
absl::StatusOr<std::vector<bool>> UsualLocalLayers(const ConfigJson& file,
                                                   const ModelConfig& config) {
  std::vector<bool> local(static_cast<size_t>(config.num_layers_in_file), true);
  if (config.architecture == "mistral") return local;
  if (IsGemma(config)) {
    SPECWIRE_ASSIGN_OR_RETURN(
        const int pattern,
        file.IntOr("sliding_window_pattern", 1, Limits::kMaxLayers, 6));
    for (size_t i = 0; i < local.size(); ++i) {
      local[i] = (i + 1) % static_cast<size_t>(pattern) != 0;
    }
    return local;
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      const int full,
      file.IntOr("max_window_layers", 0, Limits::kMaxLayers, 28));
  for (size_t i = 0; i < local.size(); ++i) {
    local[i] = i >= static_cast<size_t>(full);
  }
  return local;
}

absl::Status ReadWindow(const ConfigJson& file, ModelConfig* config) {
  const bool qwen =
      config->architecture == "qwen2" || config->architecture == "qwen3";
  bool used = true;
  if (qwen) {
    SPECWIRE_ASSIGN_OR_RETURN(used, file.BoolOr("use_sliding_window", false));
  }
  // Llama has no windows, whatever the key says.
  if (config->architecture == "llama" || !used) return absl::OkStatus();
  SPECWIRE_ASSIGN_OR_RETURN(config->sliding_window,
                            file.IntOr("sliding_window",
                                       1,
                                       Limits::kMaxContext,
                                       IsGemma(*config) ? 4096 : 0));
  if (config->sliding_window == 0) return absl::OkStatus();
  if (!file.Has("layer_types")) {
    SPECWIRE_ASSIGN_OR_RETURN(config->local_layers,
                              UsualLocalLayers(file, *config));
    return absl::OkStatus();
  }
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<std::string> types,
                            file.Strings("layer_types", Limits::kMaxLayers));
  if (types.size() != static_cast<size_t>(config->num_layers_in_file)) {
    return file.Error("layer_types",
                      absl::StrCat(types.size(),
                                   " elements for ",
                                   config->num_layers_in_file,
                                   " layers"));
  }
  for (const std::string& type : types) {
    if (type != "sliding_attention" && type != "full_attention") {
      return file.Error("layer_types",
                        absl::StrCat("\"",
                                     absl::CHexEscape(type.substr(0, 64)),
                                     "\" is not supported"));
    }
    config->local_layers.push_back(type == "sliding_attention");
  }
  return absl::OkStatus();
}

absl::Status ReadScales(const ConfigJson& file, ModelConfig* config) {
  config->attention_scale =
      1.0F / std::sqrt(static_cast<float>(config->head_dim));
  if (!IsGemma(*config)) return absl::OkStatus();
  config->post_norms = true;
  config->activation = Activation::kGeluTanh;
  config->embedding_scale = std::sqrt(static_cast<float>(config->hidden_size));
  SPECWIRE_ASSIGN_OR_RETURN(
      const float scalar,
      file.FloatOr("query_pre_attn_scalar", 1e-3, 1e6, 256));
  config->attention_scale = 1.0F / std::sqrt(scalar);
  return absl::OkStatus();
}

// The ids of a file that are tokens; an id beyond the vocabulary, as of a
// padded embedding's row, can never be chosen.
absl::Status AddEosIds(const ConfigJson& file, ModelConfig* config) {
  SPECWIRE_ASSIGN_OR_RETURN(
      const std::vector<int> ids,
      file.Ints("eos_token_id", -1, Limits::kMaxVocabulary, kMaxEosIds));
  bool known = ids.empty();
  for (const int id : ids) {
    // As some files write none.
    if (id < 0) known = true;
    if (id < 0 || id >= config->vocab_size) continue;
    config->eos_ids.push_back(id);
    known = true;
  }
  if (known) return absl::OkStatus();
  return file.Error(
      "eos_token_id",
      absl::StrCat(
          "names no token of the ", config->vocab_size, " in the vocabulary"));
}

absl::Status ReadEosIds(const std::string& folder,
                        const ConfigJson& file,
                        ModelConfig* config) {
  SPECWIRE_RETURN_IF_ERROR(AddEosIds(file, config));
  const absl::StatusOr<ConfigJson> generation =
      ConfigJson::Read(folder + "/generation_config.json");
  if (generation.ok()) {
    SPECWIRE_RETURN_IF_ERROR(AddEosIds(*generation, config));
  } else if (!absl::IsNotFound(generation.status())) {
    return generation.status();
  }
  std::sort(config->eos_ids.begin(), config->eos_ids.end());
  config->eos_ids.erase(
      std::unique(config->eos_ids.begin(), config->eos_ids.end()),
      config->eos_ids.end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ReadHfConfig(const std::string& folder,
                                         int vocab_size,
                                         int num_layers) {
  SPECWIRE_ASSIGN_OR_RETURN(const ConfigJson file,
                            ConfigJson::Read(folder + "/config.json"));
  ModelConfig config;
  config.vocab_size = vocab_size;
  config.head_size = vocab_size;
  SPECWIRE_RETURN_IF_ERROR(ReadFamily(file, &config));
  SPECWIRE_RETURN_IF_ERROR(RefuseUnsupported(file, config));
  SPECWIRE_RETURN_IF_ERROR(ReadSizes(file, &config));
  SPECWIRE_RETURN_IF_ERROR(ReadRope(file, &config));
  SPECWIRE_RETURN_IF_ERROR(ReadWindow(file, &config));
  SPECWIRE_RETURN_IF_ERROR(ReadScales(file, &config));
  SPECWIRE_ASSIGN_OR_RETURN(
      config.tied_head, file.BoolOr("tie_word_embeddings", IsGemma(config)));
  SPECWIRE_RETURN_IF_ERROR(ReadEosIds(folder, file, &config));
  SPECWIRE_RETURN_IF_ERROR(TakeLayers(folder, num_layers, &config));
  return config;
}

}  // namespace specwire
