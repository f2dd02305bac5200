// SPDX-License-Identifier: Apache-2.0
#include "common/model/model_digest.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/status_macros.h"
#include "common/model/engine_names.h"
#include "common/model/float_control.h"
#include "common/model/matrix_rows.h"

namespace specwire {
namespace {

absl::string_view BytesOf(absl::Span<const float> numbers) {
  return absl::string_view(reinterpret_cast<const char*>(numbers.data()),
                           numbers.size() * sizeof(float));
}

void AddTokenizer(const TokenizerModel& tokenizer, Sha256* digest) {
  digest->UpdateSized(tokenizer.kind);
  digest->UpdateSized(tokenizer.pre);
  for (const auto* texts : {&tokenizer.tokens, &tokenizer.merges}) {
    digest->UpdateInt(static_cast<int64_t>(texts->size()));
    for (const std::string& text : *texts) {
      digest->UpdateSized(text);
    }
  }
  digest->UpdateInt(static_cast<int64_t>(tokenizer.types.size()));
  for (const int32_t type : tokenizer.types) {
    digest->UpdateInt(type);
  }
  digest->UpdateSized(BytesOf(tokenizer.scores));
  digest->UpdateInt(static_cast<int64_t>(tokenizer.normalized_ids.size()));
  for (const int32_t id : tokenizer.normalized_ids) digest->UpdateInt(id);
  digest->UpdateInt(static_cast<int64_t>(tokenizer.leading_space));
  // Ids are never negative, so -1 stands for none.
  digest->UpdateInt(tokenizer.unk_id.value_or(-1));
  digest->UpdateInt(tokenizer.bos_id.value_or(-1));
  digest->UpdateInt(tokenizer.eos_id.value_or(-1));
  digest->UpdateInt(tokenizer.add_bos ? 1 : 0);
  digest->UpdateSized(tokenizer.chat_template);
}

void AddDraftModel(const DraftModelInfo& draft, Sha256* digest) {
  digest->UpdateSized(draft.vocabulary_fingerprint);
  digest->UpdateInt(static_cast<int64_t>(draft.head_token_ids.size()));
  for (const int32_t id : draft.head_token_ids) digest->UpdateInt(id);
}

// Appends weights as an engine has them.
class WeightDigester {
 public:
  WeightDigester(bool int8, Sha256* digest) : int8_(int8), digest_(digest) {}

  absl::Status Add(const WeightMatrix& matrix) {
    if (int8_) {
      Int8Rows rows(&matrix, digest_);
      for (int64_t row = 0; row < matrix.rows(); ++row) {
        SPECWIRE_RETURN_IF_ERROR(rows.Next().status());
      }
      return absl::OkStatus();
    }
    row_.resize(static_cast<size_t>(matrix.columns()));
    for (int64_t row = 0; row < matrix.rows(); ++row) {
      SPECWIRE_RETURN_IF_ERROR(
          ReadFloatRow(matrix, row, absl::MakeSpan(row_), digest_));
    }
    return absl::OkStatus();
  }

  // In the order of Transformer::LoadLayers.
  absl::Status Add(const LayerWeights& layer) {
    AddVector(layer.attention_norm, digest_);
    SPECWIRE_RETURN_IF_ERROR(Add(layer.qkv));
    AddVector(layer.qkv_bias, digest_);
    AddVector(layer.query_norm, digest_);
    AddVector(layer.key_norm, digest_);
    SPECWIRE_RETURN_IF_ERROR(Add(layer.attention_output));
    AddVector(layer.attention_post_norm, digest_);
    AddVector(layer.ffn_norm, digest_);
    SPECWIRE_RETURN_IF_ERROR(Add(layer.gate_up));
    SPECWIRE_RETURN_IF_ERROR(Add(layer.ffn_down));
    AddVector(layer.ffn_post_norm, digest_);
    return absl::OkStatus();
  }

  // In the order of Transformer::LoadWeights.
  absl::Status Add(const ModelWeights& weights, int num_layers) {
    SPECWIRE_ASSIGN_OR_RETURN(const WeightMatrix embedding,
                              weights.Embedding());
    SPECWIRE_RETURN_IF_ERROR(Add(embedding));
    for (int i = 0; i < num_layers; ++i) {
      SPECWIRE_ASSIGN_OR_RETURN(const LayerWeights layer, weights.Layer(i));
      SPECWIRE_RETURN_IF_ERROR(Add(layer));
    }
    SPECWIRE_ASSIGN_OR_RETURN(const std::vector<float> final_norm,
                              weights.FinalNorm());
    AddVector(final_norm, digest_);
    SPECWIRE_ASSIGN_OR_RETURN(const std::optional<WeightMatrix> head,
                              weights.Head());
    return head.has_value() ? Add(*head) : absl::OkStatus();
  }

 private:
  const bool int8_;
  Sha256* const digest_;
  std::vector<float> row_;
};

}  // namespace

EngineNumerics Int8Numerics() {
  return {
      .engine = kInt8Engine, .kv_type = "f16", .numerics_version = "int8-1"};
}

EngineNumerics ReferenceNumerics() {
  return {.engine = kReferenceEngine,
          .kv_type = "f32",
          .numerics_version = "reference-1"};
}

void AddModelHead(const EngineNumerics& numerics,
                  const ModelParts& parts,
                  Sha256* digest) {
  digest->UpdateSized("specwire model 3");
  digest->UpdateSized(numerics.engine);
  digest->UpdateSized(numerics.kv_type);
  digest->UpdateSized(numerics.numerics_version);
  parts.config.AddTo(digest);
  AddTokenizer(parts.tokenizer, digest);
  digest->UpdateSized(BytesOf(parts.rope_factors));
  if (parts.draft.has_value()) AddDraftModel(*parts.draft, digest);
}

void AddVector(absl::Span<const float> vector, Sha256* digest) {
  if (!vector.empty()) digest->UpdateSized(BytesOf(vector));
}

absl::StatusOr<std::string> ModelDigest(const ModelParts& parts,
                                        absl::string_view engine) {
  // Weights are quantised here.
  SetFloatControl();
  const bool int8 = engine == kInt8Engine;
  Sha256 digest;
  AddModelHead(int8 ? Int8Numerics() : ReferenceNumerics(), parts, &digest);
  const absl::Status added =
      WeightDigester(int8, &digest).Add(parts.weights, parts.config.num_layers);
  if (!added.ok()) return parts.InFile(added);
  return digest.FinishHex();
}

}  // namespace specwire
