// SPDX-License-Identifier: Apache-2.0
#include "common/model/gguf_config.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/gguf_tokenizer.h"

namespace specwire {
namespace {

using Limits = ModelLimits;

// Every sixth layer of a Gemma 3 model sees everything.
constexpr int kGemma3Pattern = 6;
constexpr float kGemma3LocalRopeTheta = 10000;

// Reads "<architecture>.<key>" as an integer in [min, max].
class Keys {
 public:
  Keys(const GgufFile& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  std::string Name(absl::string_view key) const {
    return absl::StrCat(prefix_, key);
  }
  bool Has(absl::string_view key) const { return file_.Has(Name(key)); }
  absl::StatusOr<int> Int(absl::string_view key, int min, int max) const {
    SPECWIRE_ASSIGN_OR_RETURN(const int64_t value,
                              file_.GetInt(Name(key), min, max));
    return static_cast<int>(value);
  }
  absl::StatusOr<int> IntOr(absl::string_view key,
                            int min,
                            int max,
                            int otherwise) const {
    return Has(key) ? Int(key, min, max) : otherwise;
  }
  absl::StatusOr<float> Float(absl::string_view key,
                              double min,
                              double max) const {
    SPECWIRE_ASSIGN_OR_RETURN(const double value,
                              file_.GetFloat(Name(key), min, max));
    return static_cast<float>(value);
  }
  absl::StatusOr<float> FloatOr(absl::string_view key,
                                double min,
                                double max,
                                float otherwise) const {
    return Has(key) ? Float(key, min, max) : otherwise;
  }
  absl::Status Error(absl::string_view key, absl::string_view problem) const {
    return file_.Error(Name(key), problem);
  }

 private:
  const GgufFile& file_;
  const std::string prefix_;
};

// A model in several files, which only llama.cpp's own reader joins.
absl::Status RefuseParts(const GgufFile& file) {
  constexpr char kKey[] = "split.count";
  if (!file.Has(kKey)) return absl::OkStatus();
  SPECWIRE_ASSIGN_OR_RETURN(const int64_t parts, file.GetInt(kKey, 0, 1 << 16));
  if (parts <= 1) return absl::OkStatus();
  return file.Error(kKey,
                    absl::StrCat("is a part of ",
                                 parts,
                                 " files, which is not supported; join them "
                                 "with llama.cpp's gguf-split"));
}

// What the forward pass does not do must not be asked for by the file.
absl::Status RefuseUnsupported(const GgufFile& file, const Keys& keys) {
  SPECWIRE_ASSIGN_OR_RETURN(const int experts,
                            keys.IntOr("expert_count", 0, 1 << 20, 0));
  if (experts != 0) {
    return keys.Error("expert_count",
                      absl::StrCat(experts, " is not supported"));
  }
  // With what each is when it says nothing.
  for (const auto& [key, nothing] :
       {std::pair("attn_logit_softcapping", 0.0F),
        std::pair("final_logit_softcapping", 0.0F),
        std::pair("attention.clamp_kqv", 0.0F),
        std::pair("attention.max_alibi_bias", 0.0F),
        std::pair("logit_scale", 0.0F),
        std::pair("residual_scale", 0.0F),
        std::pair("embedding_scale", 0.0F),
        std::pair("rope.scaling.attn_factor", 1.0F)}) {
    SPECWIRE_ASSIGN_OR_RETURN(const float value,
                              keys.FloatOr(key, -1e9, 1e9, nothing));
    if (value != nothing) {
      return keys.Error(key, absl::StrCat(value, " is not supported"));
    }
  }
  for (const auto& [key, usual] : {std::pair("attention.causal", true),
                                   std::pair("use_parallel_residual", false)}) {
    if (!keys.Has(key)) continue;
    SPECWIRE_ASSIGN_OR_RETURN(const bool value, file.GetBool(keys.Name(key)));
    if (value != usual) {
      return keys.Error(
          key, absl::StrCat(value ? "true" : "false", " is not supported"));
    }
  }
  return RefuseParts(file);
}

absl::Status ReadSizes(const Keys& keys, ModelConfig* config) {
  SPECWIRE_ASSIGN_OR_RETURN(config->num_layers_in_file,
                            keys.Int("block_count", 1, Limits::kMaxLayers));
  SPECWIRE_ASSIGN_OR_RETURN(
      config->hidden_size,
      keys.Int("embedding_length", Limits::kMinWidth, Limits::kMaxHidden));
  SPECWIRE_ASSIGN_OR_RETURN(
      config->intermediate_size,
      keys.Int(
          "feed_forward_length", Limits::kMinWidth, Limits::kMaxIntermediate));
  SPECWIRE_ASSIGN_OR_RETURN(config->max_position_embeddings,
                            keys.Int("context_length", 1, Limits::kMaxContext));
  return absl::OkStatus();
}

absl::Status ReadHeads(const Keys& keys, ModelConfig* config) {
  SPECWIRE_ASSIGN_OR_RETURN(
      config->num_heads,
      keys.Int("attention.head_count", 1, Limits::kMaxHeads));
  SPECWIRE_ASSIGN_OR_RETURN(
      config->num_kv_heads,
      keys.IntOr(
          "attention.head_count_kv", 1, config->num_heads, config->num_heads));
  if (!keys.Has("attention.key_length") &&
      config->hidden_size % config->num_heads != 0) {
    return keys.Error("attention.head_count",
                      absl::StrCat(config->num_heads,
                                   " does not divide the width ",
                                   config->hidden_size));
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      config->head_dim,
      keys.IntOr("attention.key_length",
                 2,
                 Limits::kMaxHeadDim,
                 config->hidden_size / config->num_heads));
  SPECWIRE_RETURN_IF_ERROR(CheckSizes(
      *config, [&](absl::string_view field, absl::string_view problem) {
        return keys.Error(field == "hidden_size"         ? "embedding_length"
                          : field == "intermediate_size" ? "feed_forward_length"
                          : field == "num_key_value_heads"
                              ? "attention.head_count_kv"
                              : "attention.key_length",
                          problem);
      }));
  // Both must be the head's own size: a rotation of a part of the head, or
  // values of another size than keys, is another architecture.
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    SPECWIRE_ASSIGN_OR_RETURN(
        const int value,
        keys.IntOr(key, 1, Limits::kMaxHidden, config->head_dim));
    if (value != config->head_dim) {
      return keys.Error(
          key,
          absl::StrCat(
              value, " differs from the head size ", config->head_dim));
    }
  }
  return absl::OkStatus();
}

// Llama 3's factors are a tensor of the file; here is what else there may be.
absl::Status ReadRope(const GgufFile& file,
                      const Keys& keys,
                      ModelConfig* config) {
  SPECWIRE_ASSIGN_OR_RETURN(config->rope_theta,
                            keys.FloatOr("rope.freq_base", 1, 1e12, 10000.0F));
  // Files of before there were types have a factor alone, which is linear,
  // under one of two names.
  absl::string_view type = "linear";
  if (keys.Has("rope.scaling.type")) {
    SPECWIRE_ASSIGN_OR_RETURN(type,
                              file.GetString(keys.Name("rope.scaling.type")));
  }
  if (type == "none") return absl::OkStatus();
  if (type != "linear") {
    return keys.Error(
        "rope.scaling.type",
        absl::StrCat("\"",
                     absl::CHexEscape(type.substr(0, 64)),
                     "\" is not supported; supported: none, linear"));
  }
  const char* const key = keys.Has("rope.scaling.factor")
                              ? "rope.scaling.factor"
                              : "rope.scale_linear";
  // llama.cpp takes 0 for no scaling.
  SPECWIRE_ASSIGN_OR_RETURN(const float factor, keys.FloatOr(key, 0, 1e6, 1));
  if (factor == 0 || factor == 1) return absl::OkStatus();
  if (factor < 1) {
    return keys.Error(key, absl::StrCat(factor, " is less than 1"));
  }
  config->rope_scaling.kind = RopeScaling::Kind::kLinear;
  config->rope_scaling.factor = factor;
  return absl::OkStatus();
}

// One flag for each layer, or a number: every so many layers one sees
// everything; 1 or less: none does.
absl::Status ReadLocalLayers(const GgufFile& file,
                             const Keys& keys,
                             ModelConfig* config) {
  constexpr char kKey[] = "attention.sliding_window_pattern";
  const auto flags = file.GetBoolArray(keys.Name(kKey));
  if (flags.ok()) {
    if (flags->size() != static_cast<size_t>(config->num_layers_in_file)) {
      return keys.Error(kKey,
                        absl::StrCat("has ",
                                     flags->size(),
                                     " elements for ",
                                     config->num_layers_in_file,
                                     " layers"));
    }
    config->local_layers = *flags;
    return absl::OkStatus();
  }
  const bool gemma = config->architecture == "gemma3";
  SPECWIRE_ASSIGN_OR_RETURN(
      const int pattern,
      keys.IntOr(kKey, 0, Limits::kMaxLayers, gemma ? kGemma3Pattern : 1));
  for (int layer = 1; layer <= config->num_layers_in_file; ++layer) {
    config->local_layers.push_back(pattern <= 1 || layer % pattern != 0);
  }
  return absl::OkStatus();
}

absl::Status ReadWindow(const GgufFile& file,
                        const Keys& keys,
                        ModelConfig* config) {
  SPECWIRE_ASSIGN_OR_RETURN(
      config->sliding_window,
      keys.IntOr("attention.sliding_window", 0, Limits::kMaxContext, 0));
  if (config->sliding_window == 0) return absl::OkStatus();
  const bool gemma = config->architecture == "gemma3";
  SPECWIRE_RETURN_IF_ERROR(ReadLocalLayers(file, keys, config));
  SPECWIRE_ASSIGN_OR_RETURN(
      config->local_rope_theta,
      keys.FloatOr(
          "rope.freq_base_swa", 1, 1e12, gemma ? kGemma3LocalRopeTheta : 0));
  return absl::OkStatus();
}

// What the architecture's name says.
absl::Status SetFamily(const Keys& keys, ModelConfig* config) {
  const bool gemma = config->architecture == "gemma3";
  config->qkv_bias = config->architecture == "qwen2";
  config->qk_norm = gemma || config->architecture == "qwen3";
  // The 27-billion model's queries are scaled as if heads were narrower.
  const bool largest_gemma = gemma && config->num_layers_in_file == 62;
  const int scaled_by = largest_gemma ? config->hidden_size / config->num_heads
                                      : config->head_dim;
  SPECWIRE_ASSIGN_OR_RETURN(
      config->attention_scale,
      keys.FloatOr("attention.scale",
                   1e-6,
                   1e6,
                   1.0F / std::sqrt(static_cast<float>(scaled_by))));
  if (!gemma) return absl::OkStatus();
  config->post_norms = true;
  config->activation = Activation::kGeluTanh;
  config->embedding_scale = std::sqrt(static_cast<float>(config->hidden_size));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file,
                                           int vocab_size,
                                           int num_layers) {
  ModelConfig config;
  config.vocab_size = vocab_size;
  config.head_size = vocab_size;
  SPECWIRE_ASSIGN_OR_RETURN(const absl::string_view architecture,
                            file.GetString("general.architecture"));
  if (architecture != "llama" && architecture != "qwen2" &&
      architecture != "qwen3" && architecture != "gemma3") {
    return file.Error(
        "general.architecture",
        absl::StrCat("\"",
                     absl::CHexEscape(architecture.substr(0, 64)),
                     "\" is not supported; supported: llama, qwen2, qwen3, "
                     "gemma3"));
  }
  config.architecture = std::string(architecture);
  const Keys keys(file, config.architecture);
  SPECWIRE_RETURN_IF_ERROR(RefuseUnsupported(file, keys));
  SPECWIRE_RETURN_IF_ERROR(ReadSizes(keys, &config));
  SPECWIRE_RETURN_IF_ERROR(ReadHeads(keys, &config));
  SPECWIRE_RETURN_IF_ERROR(ReadRope(file, keys, &config));
  SPECWIRE_RETURN_IF_ERROR(ReadWindow(file, keys, &config));
  SPECWIRE_RETURN_IF_ERROR(SetFamily(keys, &config));
  SPECWIRE_ASSIGN_OR_RETURN(
      config.rms_norm_eps,
      keys.Float("attention.layer_norm_rms_epsilon", 1e-12, 1e-1));
  SPECWIRE_ASSIGN_OR_RETURN(config.eos_ids, ReadEosIds(file, vocab_size));
  SPECWIRE_RETURN_IF_ERROR(TakeLayers(file.path(), num_layers, &config));
  return config;
}

}  // namespace specwire
