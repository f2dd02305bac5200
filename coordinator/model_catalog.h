// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/model/engine.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"
#include "coordinator/node_info.h"
#include "coordinator/registry.h"
#include "coordinator/token_sizes.h"

namespace specwire::coordinator {

// All that the coordinator needs of a model: never its weights.
//
// Thread safety: any thread; it does not change.
struct CatalogModel {
  // Its name and context are a node's own; those that count are with
  // ResolveModel.
  VerifierInfo info;
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenSizes token_sizes;
  // Null if the model has no chat template or has one that does not parse;
  // chat_error tells which.
  std::shared_ptr<const ChatTemplate> chat_template;
  absl::Status chat_error;
};

// The models that verifiers have told of, by digest. An entry is made from the
// first verifier of a digest and stays while the coordinator lives, so a model
// whose verifiers come back needs no second transfer.
//
// Thread safety: any thread.
class ModelCatalog {
 public:
  // More digests than these are refused.
  static constexpr size_t kMaxModels = 256;

  // Null if the digest is not known.
  std::shared_ptr<const CatalogModel> Find(const std::string& digest) const;
  // Sorted by digest.
  std::vector<std::shared_ptr<const CatalogModel>> Models() const;

  // Builds and adds a model; does nothing if its digest is known. Takes up to
  // seconds for a large vocabulary. FAILED_PRECONDITION if the tokenizer's
  // vocabulary is not the one that `info` tells of.
  absl::Status Add(const VerifierInfo& info, TokenizerModel tokenizer_model);

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<const CatalogModel>> models_
      ABSL_GUARDED_BY(mutex_);
};

// The model that a request means: `name` is a model's name or digest, and may
// be empty if models of one name only are served. Of several digests of a name
// it is the one with the most verifiers, then the lowest digest. In the result
// the model has the name that was asked for and the longest context of the
// verifiers that take work: these may differ between nodes of one digest.
//
// NOT_FOUND naming the served ones if there is none of that name;
// INVALID_ARGUMENT if the name is needed; UNAVAILABLE, with the reason, if no
// verifier takes work.
absl::StatusOr<std::shared_ptr<const CatalogModel>> ResolveModel(
    const std::string& name,
    const ModelCatalog& catalog,
    const Registry& registry);

}  // namespace specwire::coordinator
