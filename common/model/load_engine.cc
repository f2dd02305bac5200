// SPDX-License-Identifier: Apache-2.0
#include <ATen/Context.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/logging.h"
#include "common/base/processors.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/kernels/kernels.h"
#include "common/model/config.h"
#include "common/model/engine.h"
#include "common/model/engine_names.h"
#include "common/model/float_control.h"
#include "common/model/int8_attention.h"
#include "common/model/kv_cache.h"
#include "common/model/memory.h"
#include "common/model/model_digest.h"
#include "common/model/model_files.h"
#include "common/model/model_parts.h"
#include "common/model/ops_aten.h"
#include "common/model/ops_int8.h"
#include "common/model/thread_pool.h"
#include "common/model/torch_status.h"
#include "common/model/transformer.h"
#include "common/model/transformer_engine.h"

namespace specwire {
namespace {

constexpr int64_t kMaxKvCacheMib = int64_t{1} << 22;
constexpr int64_t kMaxBlocks = int64_t{1} << 26;

absl::Status CheckOptions(const EngineOptions& options) {
  const auto out_of_range =
      [](absl::string_view field, int64_t value, int64_t min, int64_t max) {
        return absl::InvalidArgumentError(absl::StrCat(
            field, ": ", value, " is not between ", min, " and ", max));
      };
  SPECWIRE_RETURN_IF_ERROR(CheckEngineName(options.engine, "engine"));
  SPECWIRE_RETURN_IF_ERROR(
      CheckFormat(options.engine, options.dtype, options.device));
  if (options.device == kCudaDevice && !at::hasCUDA()) {
    return absl::FailedPreconditionError(
        "--device: cuda: there is no CUDA device, or libtorch was built or "
        "linked without CUDA (-DSPECWIRE_CUDA=ON)");
  }
  if (options.num_threads < 1 || options.num_threads > kMaxThreads) {
    return out_of_range("--threads", options.num_threads, 1, kMaxThreads);
  }
  if (options.kv_cache_mib < 1 || options.kv_cache_mib > kMaxKvCacheMib) {
    return out_of_range(
        "--kv_cache_mib", options.kv_cache_mib, 1, kMaxKvCacheMib);
  }
  if (options.max_model_len < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max_model_len: ", options.max_model_len, " is negative"));
  }
  return absl::OkStatus();
}

std::string ModelName(const ModelFiles& files, const EngineOptions& options) {
  if (!options.served_model_name.empty()) {
    return options.served_model_name;
  }
  // Not GGUF's general.name: what converters write there is often the name of a
  // training run.
  return files.name();
}

absl::Status CheckDraftModel(const ModelParts& parts,
                             const EngineOptions& options) {
  if (!parts.draft.has_value() || options.allow_draft_model) {
    return absl::OkStatus();
  }
  const std::string& target = parts.draft->target;
  return absl::InvalidArgumentError(absl::StrCat(
      parts.files->path(),
      ": is a draft model",
      target.empty() ? "" : " for ",
      target,
      ", of use to a draft node only (--draft_model); it has no tokenizer"));
}

// The kernels that the environment asks for, or else the best ones.
absl::StatusOr<const Kernels*> ChooseKernels() {
  const char* const asked = std::getenv("SPECWIRE_ISA");
  if (asked == nullptr || *asked == '\0') return &BestKernels();
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512Vnni}) {
    if (IsaName(isa) != absl::string_view(asked)) continue;
    const Kernels* const kernels = KernelsFor(isa);
    if (kernels != nullptr) return kernels;
    return absl::FailedPreconditionError(absl::StrCat(
        "SPECWIRE_ISA: this processor cannot compute with ", asked));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("SPECWIRE_ISA: \"",
                   absl::CHexEscape(asked),
                   "\" is unknown; known: scalar, avx2, avx512vnni"));
}

// The operations of the engine asked for, and how to make them.
struct Backend {
  int64_t kv_block_bytes = 0;
  const Kernels* kernels = nullptr;  // null for the reference engine
};

absl::StatusOr<Backend> ChooseBackend(const ModelConfig& config,
                                      const EngineOptions& options) {
  Backend backend;
  if (options.engine == kReferenceEngine) {
    backend.kv_block_bytes = AtenKvBlockBytes(config);
    return backend;
  }
  backend.kv_block_bytes = Int8KvBlockBytes(config);
  SPECWIRE_ASSIGN_OR_RETURN(backend.kernels, ChooseKernels());
  return backend;
}

AtenFormat FormatOf(const EngineOptions& options) {
  return {.dtype = options.dtype == kBfloat16Dtype ? at::kBFloat16 : at::kFloat,
          .device = options.device == kCudaDevice ? at::kCUDA : at::kCPU};
}

std::unique_ptr<Ops> CreateOps(const Backend& backend,
                               const ModelConfig& config,
                               const EngineOptions& options,
                               int max_model_len,
                               std::vector<float> rope_factors) {
  std::shared_ptr<ThreadPool> threads = options.thread_pool;
  if (threads == nullptr) {
    threads = std::make_shared<ThreadPool>(options.num_threads);
  }
  if (backend.kernels == nullptr) {
    return CreateAtenOps(config,
                         {.threads = std::move(threads),
                          .max_model_len = max_model_len,
                          .rope_factors = std::move(rope_factors),
                          .format = FormatOf(options)});
  }
  return CreateInt8Ops(config,
                       {.threads = std::move(threads),
                        .max_model_len = max_model_len,
                        .rope_factors = std::move(rope_factors),
                        .kernels = backend.kernels});
}

// The number of KV blocks, and the longest sequence: what is asked for, what
// the model was made for and what fits the pool.
struct Capacity {
  int num_blocks = 0;
  int max_model_len = 0;
};

absl::StatusOr<Capacity> ChooseCapacity(const ModelConfig& config,
                                        const EngineOptions& options,
                                        int64_t block_bytes) {
  const int64_t num_blocks = std::min(
      options.kv_cache_mib * (int64_t{1} << 20) / block_bytes, kMaxBlocks);
  const int64_t in_pool = num_blocks * kKvBlockSize;
  const std::string pool =
      absl::StrCat("--kv_cache_mib ", options.kv_cache_mib, " holds ", in_pool);
  if (options.max_model_len > config.max_position_embeddings) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_model_len: ",
                     options.max_model_len,
                     " is above the model's context length ",
                     config.max_position_embeddings));
  }
  if (num_blocks < 1 || options.max_model_len > in_pool) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_model_len: ",
                     std::max(options.max_model_len, 1),
                     " tokens needed, but ",
                     pool));
  }
  Capacity capacity;
  capacity.num_blocks = static_cast<int>(num_blocks);
  capacity.max_model_len = options.max_model_len != 0
                               ? options.max_model_len
                               : config.max_position_embeddings;
  if (capacity.max_model_len > in_pool) {
    capacity.max_model_len = static_cast<int>(in_pool);
    SPECWIRE_LOG(Warning,
                 "max_model_len is ",
                 in_pool,
                 " instead of the model's ",
                 config.max_position_embeddings,
                 ": ",
                 pool,
                 " tokens");
  }
  return capacity;
}

void LogLoaded(const ModelInfo& info,
               const Backend& backend,
               const EngineOptions& options,
               int num_blocks,
               absl::Time started) {
  const int num_threads = options.thread_pool != nullptr
                              ? options.thread_pool->num_threads()
                              : options.num_threads;
  SPECWIRE_LOG(Info,
               "loaded ",
               info.name,
               " (",
               info.engine,
               backend.kernels == nullptr
                   ? ""
                   : absl::StrCat(" on ", IsaName(backend.kernels->isa)),
               ", ",
               num_threads,
               num_threads == 1 ? " thread, " : " threads, ",
               info.num_layers,
               " layers, ",
               num_blocks,
               " KV blocks) in ",
               absl::FormatDuration(absl::Now() - started));
  if (!info.draft.has_value()) return;
  SPECWIRE_LOG(Info,
               "draft model for ",
               info.draft->target,
               ": ",
               info.num_logits(),
               " of ",
               info.vocab_size,
               " tokens in its head, trained on ",
               info.draft->training_tokens,
               " tokens");
}

absl::StatusOr<std::unique_ptr<Engine>> Load(const ModelFiles& files,
                                             const EngineOptions& options) {
  const absl::Time started = absl::Now();
  SPECWIRE_ASSIGN_OR_RETURN(ModelParts parts,
                            ModelParts::Read(files, options.num_layers));
  SPECWIRE_RETURN_IF_ERROR(CheckDraftModel(parts, options));
  const ModelConfig& config = parts.config;
  SPECWIRE_ASSIGN_OR_RETURN(const Backend backend,
                            ChooseBackend(config, options));
  SPECWIRE_ASSIGN_OR_RETURN(
      const Capacity capacity,
      ChooseCapacity(config, options, backend.kv_block_bytes));
  std::unique_ptr<Ops> ops = CreateOps(
      backend, config, options, capacity.max_model_len, parts.rope_factors);
  const EngineNumerics numerics = ops->numerics();

  ModelInfo info;
  info.name = ModelName(files, options);
  info.architecture = config.architecture;
  info.engine = numerics.engine;
  info.vocab_size = config.vocab_size;
  info.num_layers = config.num_layers;
  info.num_heads = config.num_heads;
  info.max_model_len = capacity.max_model_len;
  info.eos_ids = config.eos_ids;
  info.draft = parts.draft;

  Sha256 digest;
  AddModelHead(numerics, parts, &digest);
  auto transformer =
      Transformer::Create(config, parts.weights, std::move(ops), &digest);
  if (!transformer.ok()) return parts.InFile(transformer.status());
  info.model_digest = digest.FinishHex();
  LogLoaded(info, backend, options, capacity.num_blocks, started);
  return std::make_unique<TransformerEngine>(std::move(info),
                                             std::move(parts.tokenizer),
                                             *std::move(transformer),
                                             capacity.num_blocks,
                                             options.poison_free_kv);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> LoadEngine(
    const std::string& path, const EngineOptions& options) {
  SPECWIRE_RETURN_IF_ERROR(CheckOptions(options));
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFiles> files,
                            ModelFiles::Open(path));
  const auto load = [&]() -> absl::StatusOr<std::unique_ptr<Engine>> {
    // Weights are quantised here.
    SetFloatControl();
    const c10::InferenceMode inference;
    return Load(*files, options);
  };
  auto engine = CatchingTorch(absl::StrCat("loading ", path), load);
  if (absl::IsNotFound(engine.status())) {
    // The file is there; something in it is not.
    return absl::InvalidArgumentError(engine.status().message());
  }
  return engine;
}

}  // namespace specwire
