// SPDX-License-Identifier: Apache-2.0
#include "common/model/config.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/kernels/maths.h"

namespace specwire {
namespace {

void AddFloat(float value, Sha256* digest) {
  digest->UpdateSized(
      absl::string_view(reinterpret_cast<const char*>(&value), sizeof(value)));
}

// What a frequency of `wavelength` positions is divided by; "llama3" of
// Hugging Face transformers' modeling_rope_utils.
double Llama3Factor(const RopeScaling& scaling, double wavelength) {
  const double context = scaling.original_max_position_embeddings;
  const double factor = static_cast<double>(scaling.factor);
  const double low = static_cast<double>(scaling.low_freq_factor);
  const double high = static_cast<double>(scaling.high_freq_factor);
  if (wavelength < context / high) return 1;
  if (wavelength > context / low) return factor;
  const double smooth = (context / wavelength - low) / (high - low);
  return 1 / ((1 - smooth) / factor + smooth);
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
                          vocab_size,
                          qkv_bias ? 1 : 0,
                          qk_norm ? 1 : 0,
                          post_norms ? 1 : 0,
                          static_cast<int>(activation),
                          sliding_window}) {
    digest->UpdateInt(value);
  }
  for (const float value : {rms_norm_eps,
                            rope_theta,
                            local_rope_theta,
                            attention_scale,
                            embedding_scale}) {
    AddFloat(value, digest);
  }
  digest->UpdateInt(static_cast<int64_t>(local_layers.size()));
  for (const bool local : local_layers) digest->UpdateInt(local ? 1 : 0);
  digest->UpdateInt(static_cast<int64_t>(eos_ids.size()));
  for (const int32_t id : eos_ids) digest->UpdateInt(id);
}

absl::Status CheckSizes(
    const ModelConfig& config,
    absl::FunctionRef<absl::Status(absl::string_view field,
                                   absl::string_view problem)> error) {
  // Rows of activations then start at addresses that are alike.
  for (const auto& [field, value] :
       {std::pair("hidden_size", config.hidden_size),
        std::pair("intermediate_size", config.intermediate_size)}) {
    if (value % 8 != 0) {
      return error(field, absl::StrCat(value, " is not a multiple of 8"));
    }
  }
  if (config.num_kv_heads > config.num_heads ||
      config.num_heads % config.num_kv_heads != 0) {
    return error("num_key_value_heads",
                 absl::StrCat(config.num_kv_heads,
                              " does not divide the ",
                              config.num_heads,
                              " query heads"));
  }
  if (config.head_dim % 2 != 0 || config.head_dim < 2 ||
      config.head_dim > ModelLimits::kMaxHeadDim) {
    return error("head_dim",
                 absl::StrCat("heads of ",
                              config.head_dim,
                              " values; need an even number up to ",
                              ModelLimits::kMaxHeadDim));
  }
  return absl::OkStatus();
}

absl::Status TakeLayers(absl::string_view path,
                        int num_layers,
                        ModelConfig* config) {
  if (num_layers < 0 || num_layers > config->num_layers_in_file) {
    return absl::InvalidArgumentError(absl::StrCat("--draft_layers: ",
                                                   num_layers,
                                                   " is not between 0 and the ",
                                                   config->num_layers_in_file,
                                                   " layers of ",
                                                   path));
  }
  config->num_layers =
      num_layers == 0 ? config->num_layers_in_file : num_layers;
  return absl::OkStatus();
}

std::vector<float> RopeFactors(const ModelConfig& config) {
  std::vector<float> factors;
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::kNone) return factors;
  // With our own logarithm: the C library's has other bits elsewhere.
  const double log_theta = Log(static_cast<double>(config.rope_theta));
  for (int i = 0; i < config.head_dim / 2; ++i) {
    if (scaling.kind == RopeScaling::Kind::kLinear) {
      factors.push_back(scaling.factor);
      continue;
    }
    const double wavelength =
        2 * M_PI *
        Exp(static_cast<double>(2 * i) / config.head_dim * log_theta);
    factors.push_back(static_cast<float>(Llama3Factor(scaling, wavelength)));
  }
  return factors;
}

}  // namespace specwire
