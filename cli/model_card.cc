// SPDX-License-Identifier: Apache-2.0
#include "cli/model_card.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/status_macros.h"
#include "common/model/engine_names.h"
#include "common/model/memory.h"
#include "common/model/model_digest.h"
#include "common/model/model_parts.h"
#include "common/model/tensor_names.h"
#include "common/text/chat_template.h"

namespace specwire::cli {
namespace {

void AddTensors(const TensorTable& table, ModelCard* card) {
  std::map<std::string, ModelCard::Tensors> by_type;
  for (const FileTensor& tensor : table.tensors()) {
    const std::string type = InfoOf(tensor.type).name;
    ModelCard::Tensors& tensors = by_type[type];
    tensors.type = type;
    ++tensors.count;
    tensors.bytes += static_cast<int64_t>(tensor.data.size());
    card->num_parameters += tensor.num_elements();
  }
  for (auto& [type, tensors] : by_type) {
    card->tensors.push_back(std::move(tensors));
  }
  std::stable_sort(
      card->tensors.begin(),
      card->tensors.end(),
      [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
}

}  // namespace

absl::StatusOr<ModelCard> ReadModelCard(const ModelFiles& files) {
  ModelCard card;
  card.path = files.path();
  card.format = files.format();
  card.name = files.name();
  SPECWIRE_ASSIGN_OR_RETURN(card.vocabulary, ReadVocabulary(files));
  SPECWIRE_ASSIGN_OR_RETURN(card.config,
                            files.ReadConfig(card.vocabulary.size, 0));
  if (card.vocabulary.draft.has_value() &&
      !card.vocabulary.draft->head_token_ids.empty()) {
    card.config.head_size =
        static_cast<int>(card.vocabulary.draft->head_token_ids.size());
  }
  const TensorTable& table = files.tensor_table();
  const TensorNames names = NamesFor(files.naming(), card.config);
  card.tied_head = card.config.tied_head || table.Find(names.head) == nullptr;
  card.rope_factors =
      !names.rope_factors.empty() && table.Find(names.rope_factors) != nullptr;
  AddTensors(table, &card);
  for (const char* const engine : kEngineNames) {
    for (const char* const dtype : {kFloat32Dtype, kBfloat16Dtype}) {
      if (!CheckFormat(engine, dtype, kCpuDevice).ok()) continue;
      SPECWIRE_ASSIGN_OR_RETURN(
          const int64_t bytes,
          WeightBytes(engine, dtype, table, files.naming(), card.config));
      card.weights.push_back({engine, dtype, bytes});
    }
  }
  if (card.has_chat_template()) {
    card.chat_template =
        ChatTemplate::Create(card.vocabulary.tokenizer->model().chat_template)
            .status();
  }
  return card;
}

absl::Status AddModelDigests(const ModelFiles& files, ModelCard* card) {
  SPECWIRE_ASSIGN_OR_RETURN(const ModelParts parts, ModelParts::Read(files, 0));
  for (const char* const engine : kEngineNames) {
    SPECWIRE_ASSIGN_OR_RETURN(std::string digest, ModelDigest(parts, engine));
    card->digests.push_back({engine, std::move(digest)});
  }
  return absl::OkStatus();
}

}  // namespace specwire::cli
