// SPDX-License-Identifier: Apache-2.0
#include "coordinator/model_catalog.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace specwire::coordinator {
namespace {

absl::StatusOr<std::shared_ptr<const CatalogModel>> Build(
    const VerifierInfo& info, TokenizerModel tokenizer_model) {
  auto model = std::make_shared<CatalogModel>();
  model->info = info;
  SPECWIRE_ASSIGN_OR_RETURN(model->tokenizer,
                            Tokenizer::Create(std::move(tokenizer_model)));
  const Tokenizer& tokenizer = *model->tokenizer;
  if (tokenizer.fingerprint() != info.vocabulary_fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrCat("vocabulary_fingerprint: the verifier tells ",
                     info.vocabulary_fingerprint,
                     ", its tokenizer has ",
                     tokenizer.fingerprint()));
  }
  if (tokenizer.vocab_size() != info.model.vocab_size) {
    return absl::FailedPreconditionError(
        absl::StrCat("vocab_size: the verifier tells ",
                     info.model.vocab_size,
                     ", its tokenizer has ",
                     tokenizer.vocab_size()));
  }
  model->token_sizes = TokenSizes(tokenizer);
  if (tokenizer.model().chat_template.empty()) {
    model->chat_error = absl::InvalidArgumentError(
        absl::StrCat("prompt.chat: model '",
                     info.model.name,
                     "' has no chat template; use text or token_ids"));
    return model;
  }
  absl::StatusOr<std::unique_ptr<ChatTemplate>> chat_template =
      ChatTemplate::Create(tokenizer.model().chat_template);
  if (chat_template.ok()) {
    model->chat_template = *std::move(chat_template);
  } else {
    model->chat_error = absl::InvalidArgumentError(
        absl::StrCat("prompt.chat: the chat template of model '",
                     info.model.name,
                     "' cannot be used: ",
                     chat_template.status().message()));
    SPECWIRE_LOG(Warning, model->chat_error.message());
  }
  return model;
}

}  // namespace

std::shared_ptr<const CatalogModel> ModelCatalog::Find(
    const std::string& digest) const {
  MutexLock lock(&mutex_);
  const auto it = models_.find(digest);
  return it == models_.end() ? nullptr : it->second;
}

std::vector<std::shared_ptr<const CatalogModel>> ModelCatalog::Models() const {
  std::vector<std::shared_ptr<const CatalogModel>> models;
  MutexLock lock(&mutex_);
  for (const auto& [digest, model] : models_) models.push_back(model);
  return models;
}

absl::Status ModelCatalog::Add(const VerifierInfo& info,
                               TokenizerModel tokenizer_model) {
  if (Find(info.model.model_digest) != nullptr) return absl::OkStatus();
  SPECWIRE_ASSIGN_OR_RETURN(std::shared_ptr<const CatalogModel> model,
                            Build(info, std::move(tokenizer_model)));
  MutexLock lock(&mutex_);
  if (models_.size() >= kMaxModels) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxModels, " models"));
  }
  if (models_.emplace(info.model.model_digest, std::move(model)).second) {
    SPECWIRE_LOG(Info,
                 "model '",
                 info.model.name,
                 "', digest ",
                 info.model.model_digest,
                 ": ",
                 info.model.vocab_size,
                 " tokens, context ",
                 info.model.max_model_len,
                 ", engine ",
                 info.model.engine);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const CatalogModel>> ResolveModel(
    const std::string& name,
    const ModelCatalog& catalog,
    const Registry& registry) {
  std::set<std::string> served;
  std::string known_digest;
  std::shared_ptr<const CatalogModel> best;
  Registry::Served best_served;
  for (const std::shared_ptr<const CatalogModel>& model : catalog.Models()) {
    const ModelInfo& info = model->info.model;
    Registry::Served now = registry.ServedModel(info.model_digest);
    served.insert(now.names.begin(), now.names.end());
    if (!name.empty() && name != info.model_digest &&
        !now.names.contains(name) &&
        (now.num_verifiers > 0 || name != info.name)) {
      continue;
    }
    known_digest = info.model_digest;
    if (now.num_verifiers > best_served.num_verifiers) {
      best = model;
      best_served = std::move(now);
    }
  }
  if (best == nullptr) {
    if (served.empty() || !known_digest.empty()) {
      return absl::UnavailableError(
          registry.WhyNoVerifier(name.empty() ? "" : known_digest));
    }
    return absl::NotFoundError(absl::StrCat("model: '",
                                            name,
                                            "' is not served; served: ",
                                            absl::StrJoin(served, ", ")));
  }
  if (name.empty() && served.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: several are served, name one of: ",
                     absl::StrJoin(served, ", ")));
  }
  ModelInfo described = best->info.model;
  described.max_model_len = best_served.max_model_len;
  if (!best_served.names.contains(described.name)) {
    described.name = *best_served.names.begin();
  }
  if (best_served.names.contains(name)) described.name = name;
  if (described.max_model_len == best->info.model.max_model_len &&
      described.name == best->info.model.name) {
    return best;
  }
  auto model = std::make_shared<CatalogModel>(*best);
  model->info.model = std::move(described);
  return model;
}

}  // namespace specwire::coordinator
