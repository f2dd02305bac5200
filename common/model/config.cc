// SPDX-License-Identifier: Apache-2.0
#include "common/model/config.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/gguf_tokenizer.h"

namespace specwire {
namespace {

// Bounds for numbers that a file may claim: far above any model that fits on
// one machine, low enough that no product of two of them overflows.
constexpr int kMaxLayers = 512;
constexpr int kMaxHidden = 1 << 16;
constexpr int kMaxIntermediate = 1 << 18;
constexpr int kMaxHeads = 512;
constexpr int kMaxHeadDim = 512;
constexpr int kMaxContext = 1 << 20;

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
  absl::Status Error(absl::string_view key, absl::string_view problem) const {
    return file_.Error(Name(key), problem);
  }

 private:
  const GgufFile& file_;
  const std::string prefix_;
};

// What the forward pass does not do must not be asked for by the file.
absl::Status RefuseUnsupported(const GgufFile& file, const Keys& keys) {
  for (const char* key :
       {"expert_count", "attention.sliding_window", "logit_scale"}) {
    if (keys.Has(key)) {
      SPECWIRE_ASSIGN_OR_RETURN(
          const int64_t value,
          file.GetInt(keys.Name(key), 0, int64_t{1} << 40));
      if (value != 0) {
        return keys.Error(key, absl::StrCat(value, " is not supported"));
      }
    }
  }
  if (keys.Has("rope.scaling.type")) {
    SPECWIRE_ASSIGN_OR_RETURN(const absl::string_view type,
                              file.GetString(keys.Name("rope.scaling.type")));
    if (type != "none") {
      return keys.Error("rope.scaling.type",
                        absl::StrCat("\"", type, "\" is not supported"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadSizes(const Keys& keys, ModelConfig* config) {
  SPECWIRE_ASSIGN_OR_RETURN(config->num_layers_in_file,
                            keys.Int("block_count", 1, kMaxLayers));
  SPECWIRE_ASSIGN_OR_RETURN(config->hidden_size,
                            keys.Int("embedding_length", 8, kMaxHidden));
  SPECWIRE_ASSIGN_OR_RETURN(
      config->intermediate_size,
      keys.Int("feed_forward_length", 8, kMaxIntermediate));
  SPECWIRE_ASSIGN_OR_RETURN(config->max_position_embeddings,
                            keys.Int("context_length", 1, kMaxContext));
  // Rows of activations then start at addresses that are alike.
  for (const auto& [key, value] :
       {std::pair("embedding_length", config->hidden_size),
        std::pair("feed_forward_length", config->intermediate_size)}) {
    if (value % 8 != 0) {
      return keys.Error(key, absl::StrCat(value, " is not a multiple of 8"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadHeads(const Keys& keys, ModelConfig* config) {
  SPECWIRE_ASSIGN_OR_RETURN(config->num_heads,
                            keys.Int("attention.head_count", 1, kMaxHeads));
  SPECWIRE_ASSIGN_OR_RETURN(
      config->num_kv_heads,
      keys.IntOr(
          "attention.head_count_kv", 1, config->num_heads, config->num_heads));
  if (config->num_heads % config->num_kv_heads != 0) {
    return keys.Error("attention.head_count_kv",
                      absl::StrCat(config->num_kv_heads,
                                   " does not divide the ",
                                   config->num_heads,
                                   " query heads"));
  }
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
                 kMaxHeadDim,
                 config->hidden_size / config->num_heads));
  if (config->head_dim % 2 != 0 || config->head_dim > kMaxHeadDim) {
    return keys.Error("attention.key_length",
                      absl::StrCat("heads of ",
                                   config->head_dim,
                                   " values; need an even number up to ",
                                   kMaxHeadDim));
  }
  // Both must be the head's own size: a rotation of a part of the head, or
  // values of another size than keys, is another architecture.
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    SPECWIRE_ASSIGN_OR_RETURN(const int value,
                              keys.IntOr(key, 1, kMaxHidden, config->head_dim));
    if (value != config->head_dim) {
      return keys.Error(
          key,
          absl::StrCat(
              value, " differs from the head size ", config->head_dim));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void ModelConfig::AddTo(Sha256* digest) const {
  digest->UpdateSized(architecture);
  for (const int value : {num_layers_in_file,
                          num_layers,
                          hidden_size,
                          intermediate_size,
                          num_heads,
                          num_kv_heads,
                          head_dim,
                          max_position_embeddings,
                          vocab_size}) {
    digest->UpdateInt(value);
  }
  for (const float value : {rms_norm_eps, rope_theta}) {
    digest->UpdateSized(absl::string_view(reinterpret_cast<const char*>(&value),
                                          sizeof(value)));
  }
  digest->UpdateInt(static_cast<int64_t>(eos_ids.size()));
  for (const int32_t id : eos_ids) {
    digest->UpdateInt(id);
  }
}

absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file,
                                            int vocab_size,
                                            int num_layers) {
  ModelConfig config;
  config.vocab_size = vocab_size;
  config.head_size = vocab_size;
  SPECWIRE_ASSIGN_OR_RETURN(const absl::string_view architecture,
                            file.GetString("general.architecture"));
  if (architecture != "llama") {
    return file.Error(
        "general.architecture",
        absl::StrCat(
            "\"", architecture, "\" is not supported; supported: llama"));
  }
  config.architecture = std::string(architecture);
  const Keys keys(file, config.architecture);
  SPECWIRE_RETURN_IF_ERROR(RefuseUnsupported(file, keys));
  SPECWIRE_RETURN_IF_ERROR(ReadSizes(keys, &config));
  SPECWIRE_RETURN_IF_ERROR(ReadHeads(keys, &config));
  SPECWIRE_ASSIGN_OR_RETURN(
      config.rms_norm_eps,
      keys.Float("attention.layer_norm_rms_epsilon", 1e-12, 1e-1));
  config.rope_theta = 10000.0F;
  if (keys.Has("rope.freq_base")) {
    SPECWIRE_ASSIGN_OR_RETURN(config.rope_theta,
                              keys.Float("rope.freq_base", 1, 1e12));
  }
  SPECWIRE_ASSIGN_OR_RETURN(config.eos_ids, ReadEosIds(file, vocab_size));
  if (num_layers < 0 || num_layers > config.num_layers_in_file) {
    return absl::InvalidArgumentError(absl::StrCat("--draft_layers: ",
                                                   num_layers,
                                                   " is not between 0 and the ",
                                                   config.num_layers_in_file,
                                                   " layers of ",
                                                   file.path()));
  }
  config.num_layers = num_layers == 0 ? config.num_layers_in_file : num_layers;
  return config;
}

}  // namespace specwire
