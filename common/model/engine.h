// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/draft_model.h"
#include "common/model/engine_names.h"
#include "common/text/tokenizer_model.h"

namespace specwire {

class ThreadPool;

// What others need to know of a loaded model.
struct ModelInfo {
  // Name for users: the file's stem, unless another was asked for.
  std::string name;
  // For example "llama".
  std::string architecture;
  // "reference" or "int8".
  std::string engine;
  // Hexadecimal SHA-256 of all that decides the model's tokens: weights,
  // config, tokenizer, engine, KV type, numerics version.
  std::string model_digest;
  int vocab_size = 0;
  int num_layers = 0;
  // Query heads of a layer; 0: it has no attention.
  int num_heads = 0;
  // Longest sequence in tokens, prompt and completion together.
  int max_model_len = 0;
  // Ids that end a sequence, ascending: the tokenizer's EOS, and EOT or EOM
  // where the file names them.
  std::vector<int32_t> eos_ids;
  // No model: tokens are made up. Every reply says so.
  bool synthetic = false;
  // Of a draft model, which has an empty TokenizerModel.
  std::optional<DraftModelInfo> draft = std::nullopt;

  // Tokens that have a logit, if not all; see DraftModelInfo.
  absl::Span<const int32_t> head_token_ids() const {
    return draft.has_value() ? draft->head_token_ids
                             : absl::Span<const int32_t>();
  }
  // Logits in a row.
  int num_logits() const {
    return head_token_ids().empty() ? vocab_size
                                    : static_cast<int>(head_token_ids().size());
  }
};

struct EngineOptions {
  // One of common/model/engine_names.h.
  std::string engine = kDefaultEngine;
  // In what the reference engine keeps its weights and computes their products,
  // and where; see common/model/engine_names.h.
  std::string dtype = kFloat32Dtype;
  std::string device = kCpuDevice;
  // Size of the pool that the engine makes for its forward passes, at least 1,
  // unless it is given one.
  int num_threads = 1;
  // The pool to use instead of one of its own: shared by engines whose passes
  // follow each other on one thread, for workers that still watch for work when
  // the next engine has some.
  std::shared_ptr<ThreadPool> thread_pool = nullptr;
  // Size of the KV block pool in MiB. Memory that no token has reached is
  // reserved, not used.
  int64_t kv_cache_mib = 512;
  // Longest sequence; 0 means what the model file says, or as much of it as the
  // pool holds. Never above either.
  int max_model_len = 0;
  // Only the first N layers, with the model's own final norm and head; 0 means
  // all.
  int num_layers = 0;
  // Whether the file may be a draft model, which no verifier can serve.
  bool allow_draft_model = false;
  // Overrides ModelInfo::name unless empty.
  std::string served_model_name;
  // For tests: keys and values that belong to no position of any sequence are
  // set to NaN, so that reading one shows.
  bool poison_free_kv = false;
};

// One sequence's slice of the KV cache. Destroying it frees its blocks.
//
// Thread safety: the engine's thread only, its destructor included.
// Lifetime: must not outlive the Engine that made it.
class KvSequence {
 public:
  virtual ~KvSequence() = default;
  // Number of leading positions whose keys and values are cached.
  virtual int length() const = 0;
  // Rolls back to `length` positions and returns whole blocks behind it. If
  // that cuts a block that another sequence shares, all of that block is given
  // up: length() is then less, at the block's start.
  // REQUIRES: 0 <= length <= length().
  virtual void Truncate(int length) = 0;

  // Takes over what the prefix cache holds of `tokens`, in whole blocks, and
  // returns length(). At least the last of `tokens` is left to compute. From
  // then on the sequence's own full blocks are offered to later sequences of
  // the same `salt`, and to no others. A taken block holds the bits that
  // computing it anew would give. An engine without a prefix cache takes
  // nothing.
  // REQUIRES: length() == 0; called at most once.
  virtual int ReusePrefix(absl::string_view /*salt*/,
                          absl::Span<const int32_t> /*tokens*/) {
    return 0;
  }
};

// Asks a pass for the attention weights of a layer, to be looked at.
struct AttentionProbe {
  // 0 to num_layers - 1.
  int layer = 0;
  // Set by the pass: for each head and row of the run the weights of all
  // positions up to the run's end, [num_heads, rows, kv length + rows] f32. A
  // row's sum to 1, those behind its own position are 0. An engine without
  // attention sets none.
  std::vector<float> weights = {};
};

// One sequence's part of a forward pass: `tokens` stand at positions
// kv->length(), kv->length() + 1, ...
struct ForwardRun {
  KvSequence* kv = nullptr;
  absl::Span<const int32_t> tokens;
  // Logits are computed for the last `num_logits` of `tokens` only.
  int num_logits = 0;
  // If not empty, the tokens of those rows' largest logits are written here
  // (lowest id among equals; -1 if none is a number) and the logits themselves
  // are left out of the result: cheaper, where only the arg-max counts.
  // REQUIRES: empty, or of size num_logits.
  absl::Span<int32_t> best = {};
  // If not null, filled in; the pass's other results stay the same bits.
  AttentionProbe* attention = nullptr;
};

// A causal language model with its KV cache. An engine knows nothing of
// proposals, requests or RPCs: it computes rows.
//
// A row's result never depends on the other rows of a pass, on their number, or
// on how a prompt was cut into passes.
//
// Thread safety: Forward and NewSequence on one thread, the engine's; the
// gauges, rows_computed, progress and info from any thread.
class Engine {
 public:
  // Rows that one Forward may have at most; a longer prefill is cut into
  // chunks.
  static constexpr int kMaxRows = 512;

  virtual ~Engine() = default;

  virtual const ModelInfo& info() const = 0;
  virtual const TokenizerModel& tokenizer_model() const = 0;

  // A new, empty sequence. Holds no blocks until tokens are computed.
  virtual std::unique_ptr<KvSequence> NewSequence() = 0;

  // Computes all runs in one pass and appends their keys and values to their
  // sequences. Returns logits [sum of num_logits, info().num_logits()] f32, run
  // by run (without runs that want `best`), valid until the next call. Rows
  // beyond the tokenizer's vocabulary do not exist: vocab_size is the
  // tokenizer's.
  //
  // RESOURCE_EXHAUSTED if the pool has too few free blocks, INVALID_ARGUMENT if
  // a token id or a length is out of range; then no sequence has changed.
  virtual absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const ForwardRun> runs) = 0;

  // Tokens in one KV block, blocks in the pool, blocks that sequences hold (one
  // that several share counts once), and blocks that no sequence holds but the
  // prefix cache: those are free for whoever needs them.
  virtual int kv_block_size() const = 0;
  virtual int64_t kv_blocks_total() const = 0;
  virtual int64_t kv_blocks_used() const = 0;
  virtual int64_t kv_blocks_cached() const { return 0; }

  // Rows that passes computed since the engine was made, each of which had its
  // keys and values projected once; failed passes do not count.
  virtual int64_t rows_computed() const = 0;
  // Key rows, and as many value rows, that were projected since then, each
  // layer's by itself. Counted where it is done.
  virtual int64_t kv_rows_projected() const { return 0; }

  // Counts up within a pass, with each layer of it: a long pass gets on, one
  // that hangs does not.
  virtual int64_t progress() const { return 0; }
};

// Loads a model: a GGUF file or a Hugging Face folder. Errors name the file and
// the field.
absl::StatusOr<std::unique_ptr<Engine>> LoadEngine(
    const std::string& path, const EngineOptions& options);

}  // namespace specwire
