// SPDX-License-Identifier: Apache-2.0
#include "common/model/transformer_engine.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/float_control.h"
#include "common/model/torch_status.h"

namespace specwire {

namespace {

KvCache::Release Poisoner(Transformer* transformer) {
  return [transformer](int32_t block, int slot) {
    transformer->ops().PoisonKvBlock(block, slot);
  };
}

}  // namespace

TransformerEngine::TransformerEngine(ModelInfo info,
                                     TokenizerModel tokenizer,
                                     std::unique_ptr<Transformer> transformer,
                                     int num_blocks,
                                     bool poison)
    : info_(std::move(info)),
      tokenizer_(std::move(tokenizer)),
      transformer_(std::move(transformer)),
      cache_(num_blocks, poison ? Poisoner(transformer_.get()) : nullptr) {
  transformer_->ops().AllocateKvCache(num_blocks);
  for (int block = 0; poison && block < num_blocks; ++block) {
    transformer_->ops().PoisonKvBlock(block, 0);
  }
}

int32_t TransformerEngine::HeadToken(int32_t row) const {
  const absl::Span<const int32_t> ids = info_.head_token_ids();
  return row < 0 || ids.empty() ? row : ids[static_cast<size_t>(row)];
}

absl::Status TransformerEngine::CheckTokens(const ForwardRun& run,
                                            int index) const {
  const std::string field = absl::StrCat("runs[", index, "].");
  if (run.tokens.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, "tokens: must not be empty"));
  }
  const int count = static_cast<int>(run.tokens.size());
  if (run.num_logits < 0 || run.num_logits > count) {
    return absl::InvalidArgumentError(absl::StrCat(field,
                                                   "num_logits: ",
                                                   run.num_logits,
                                                   " is not between 0 and the ",
                                                   count,
                                                   " tokens"));
  }
  if (!run.best.empty() &&
      run.best.size() != static_cast<size_t>(run.num_logits)) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, "best: holds ", run.best.size(), ", not ", run.num_logits));
  }
  if (run.attention != nullptr &&
      (run.attention->layer < 0 || run.attention->layer >= info_.num_layers)) {
    return absl::InvalidArgumentError(absl::StrCat(field,
                                                   "attention.layer: ",
                                                   run.attention->layer,
                                                   " is not in [0, ",
                                                   info_.num_layers,
                                                   ")"));
  }
  if (run.kv->length() + count > info_.max_model_len) {
    return absl::InvalidArgumentError(
        absl::StrCat(field,
                     "tokens: ",
                     run.kv->length(),
                     " cached and ",
                     count,
                     " new ones exceed max_model_len ",
                     info_.max_model_len));
  }
  for (size_t i = 0; i < run.tokens.size(); ++i) {
    if (run.tokens[i] < 0 || run.tokens[i] >= info_.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(field,
                                                     "tokens[",
                                                     i,
                                                     "]: ",
                                                     run.tokens[i],
                                                     " is not in [0, ",
                                                     info_.vocab_size,
                                                     ")"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PagedSequence*>> TransformerEngine::Check(
    absl::Span<const ForwardRun> runs) const {
  size_t rows = 0;
  for (const ForwardRun& run : runs) {
    rows += run.tokens.size();
  }
  if (rows < 1 || rows > size_t{kMaxRows}) {
    return absl::InvalidArgumentError(
        absl::StrCat("runs: ", rows, " rows; a pass has 1 to ", int{kMaxRows}));
  }
  std::vector<PagedSequence*> sequences;
  for (size_t i = 0; i < runs.size(); ++i) {
    auto* const sequence = dynamic_cast<PagedSequence*>(runs[i].kv);
    if (sequence == nullptr || sequence->cache() != &cache_) {
      return absl::InvalidArgumentError(
          absl::StrCat("runs[", i, "].kv: is not a sequence of this engine"));
    }
    if (std::find(sequences.begin(), sequences.end(), sequence) !=
        sequences.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("runs[", i, "].kv: is in another run of the pass"));
    }
    SPECWIRE_RETURN_IF_ERROR(CheckTokens(runs[i], static_cast<int>(i)));
    sequences.push_back(sequence);
  }
  return sequences;
}

absl::Status TransformerEngine::Reserve(
    absl::Span<const ForwardRun> runs,
    absl::Span<PagedSequence* const> sequences) {
  // What a sequence has kept until its next pass is no rejected draft token's.
  // It may turn out that others hold it too, which leaves room.
  for (PagedSequence* const sequence : sequences) sequence->Offer();
  int needed = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    needed += sequences[i]->BlocksFor(static_cast<int>(runs[i].tokens.size()));
  }
  const int free = cache_.pool().free();
  if (needed > free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("KV cache: ",
                     needed,
                     " blocks of ",
                     kKvBlockSize,
                     " tokens needed, ",
                     free,
                     " of ",
                     cache_.pool().total(),
                     " free; retry when another sequence has ended"));
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!sequences[i]->Reserve(static_cast<int>(runs[i].tokens.size()))) {
      return absl::InternalError("KV cache: the pool lost blocks");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> TransformerEngine::Forward(
    absl::Span<const ForwardRun> runs) {
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<PagedSequence*> sequences,
                            Check(runs));
  const auto compute = [&]() -> absl::StatusOr<absl::Span<const float>> {
    SPECWIRE_RETURN_IF_ERROR(Reserve(runs, sequences));
    Pass pass;
    for (size_t i = 0; i < runs.size(); ++i) {
      const ForwardRun& run = runs[i];
      const int count = static_cast<int>(run.tokens.size());
      pass.runs.push_back({.first_row = pass.num_rows(),
                           .num_rows = count,
                           .start = run.kv->length(),
                           .blocks = sequences[i]->blocks(),
                           .attention = run.attention});
      pass.tokens.insert(
          pass.tokens.end(), run.tokens.begin(), run.tokens.end());
      std::vector<int>& wanted =
          run.best.empty() ? pass.logit_rows : pass.best_rows;
      for (int left = run.num_logits; left > 0; --left) {
        wanted.push_back(pass.num_rows() - left);
      }
    }
    // Cheap, and whatever thread calls may have run a library's code before.
    SetFloatControl();
    const c10::InferenceMode inference;
    std::vector<int32_t> best(pass.best_rows.size());
    const absl::Span<const float> result =
        transformer_->Forward(pass, absl::MakeSpan(best));
    rows_computed_ += pass.num_rows();
    auto next = best.begin();
    for (const ForwardRun& run : runs) {
      for (int32_t& token : run.best) token = HeadToken(*next++);
    }
    return result;
  };
  const auto logits = CatchingTorch("forward pass", compute);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (logits.ok()) {
      sequences[i]->Advance(runs[i].tokens);
    } else {
      sequences[i]->Unreserve();
    }
  }
  return logits;
}

}  // namespace specwire
