// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/synthetic_engine.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/base/round_up.h"
#include "common/base/status_macros.h"

namespace specwire::verifier {
namespace {

// What stands between the language's own token and all others: more than noise,
// penalties and biases together can bridge at any temperature. Not without
// bound, so that something is left where that token is forbidden.
constexpr float kOthersLogit = -1e9f;

int64_t BlocksFor(int64_t length, int block_size) {
  return DivideUp(length, block_size);
}

}  // namespace

// Its cache is the language's state after each token.
class SyntheticEngine::Sequence final : public KvSequence {
 public:
  explicit Sequence(SyntheticEngine* engine) : engine_(engine) {}
  ~Sequence() override { Truncate(0); }

  int length() const override { return static_cast<int>(states_.size()); }

  void Truncate(int length) override {
    Count(length);
    states_.resize(static_cast<size_t>(length));
  }

  // REQUIRES: the pool has room.
  void Append(absl::Span<const int32_t> tokens) {
    Count(length() + static_cast<int>(tokens.size()));
    const SyntheticLanguage& language = engine_->language_;
    uint64_t state = states_.empty() ? language.Begin() : states_.back();
    for (const int32_t token : tokens) {
      state = language.Extend(state, token);
      states_.push_back(state);
    }
  }

  // After each token.
  absl::Span<const uint64_t> states() const { return states_; }

 private:
  void Count(int length_then) {
    engine_->blocks_used_ +=
        BlocksFor(length_then, kBlockSize) - BlocksFor(length(), kBlockSize);
  }

  SyntheticEngine* const engine_;
  std::vector<uint64_t> states_;
};

absl::StatusOr<std::unique_ptr<SyntheticEngine>> SyntheticEngine::Create(
    const SyntheticEngineOptions& options) {
  SPECWIRE_RETURN_IF_ERROR(
      CheckSyntheticVocab(options.vocab_size, "--synthetic_vocab"));
  SPECWIRE_RETURN_IF_ERROR(CheckSyntheticWait(
      absl::ToInt64Microseconds(options.step_time), "--synthetic_step_us"));
  SPECWIRE_RETURN_IF_ERROR(CheckSyntheticWait(
      absl::ToInt64Microseconds(options.row_time), "--synthetic_row_us"));
  if (options.max_model_len < 0 || options.max_model_len > kMaxMaxModelLen) {
    return absl::InvalidArgumentError(absl::StrCat("--max_model_len: ",
                                                   options.max_model_len,
                                                   " is not between 1 and ",
                                                   kMaxMaxModelLen,
                                                   " (0: ",
                                                   kDefaultMaxModelLen,
                                                   ")"));
  }
  // The constructor is private.
  return std::unique_ptr<SyntheticEngine>(new SyntheticEngine(options));
}

SyntheticEngine::SyntheticEngine(const SyntheticEngineOptions& options)
    : language_(options.vocab_size),
      step_time_(options.step_time),
      row_time_(options.row_time),
      tokenizer_(language_.Tokenizer()),
      num_blocks_((options.kv_cache_mib << 20) / (kBlockSize * kBytesPerToken)),
      time_(options.hang),
      passes_left_(options.fail_after) {
  info_.name = options.served_model_name.empty() ? kSynthetic
                                                 : options.served_model_name;
  info_.architecture = kSynthetic;
  info_.engine = kSynthetic;
  info_.model_digest = language_.Digest();
  info_.vocab_size = language_.vocab_size();
  info_.max_model_len =
      options.max_model_len > 0 ? options.max_model_len : kDefaultMaxModelLen;
  info_.max_model_len = static_cast<int>(
      std::min<int64_t>(info_.max_model_len, num_blocks_ * kBlockSize));
  info_.eos_ids = {SyntheticLanguage::kEos};
  info_.synthetic = true;
}

std::unique_ptr<KvSequence> SyntheticEngine::NewSequence() {
  return std::make_unique<Sequence>(this);
}

absl::StatusOr<int64_t> SyntheticEngine::CheckRuns(
    absl::Span<const ForwardRun> runs) const {
  int64_t num_rows = 0;
  int64_t needed = 0;
  for (const ForwardRun& run : runs) {
    const auto count = static_cast<int64_t>(run.tokens.size());
    const int64_t length = run.kv->length();
    if (count < 1 || run.num_logits < 0 || run.num_logits > count ||
        length + count > info_.max_model_len) {
      return absl::InvalidArgumentError(absl::StrCat("a run of ",
                                                     count,
                                                     " tokens and ",
                                                     run.num_logits,
                                                     " logits at position ",
                                                     length,
                                                     ", max_model_len is ",
                                                     info_.max_model_len));
    }
    for (const int32_t token : run.tokens) {
      if (token < 0 || token >= info_.vocab_size) {
        return absl::InvalidArgumentError(
            absl::StrCat("token ", token, " is not in the vocabulary"));
      }
    }
    num_rows += count;
    needed +=
        BlocksFor(length + count, kBlockSize) - BlocksFor(length, kBlockSize);
  }
  if (num_rows < 1 || num_rows > kMaxRows) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a pass of ", num_rows, " rows; it must have 1 to ", kMaxRows));
  }
  if (const int64_t free = num_blocks_ - blocks_used_; needed > free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("KV cache: ", needed, " blocks needed, ", free, " free"));
  }
  return num_rows;
}

absl::StatusOr<absl::Span<const float>> SyntheticEngine::Forward(
    absl::Span<const ForwardRun> runs) {
  const auto start = std::chrono::steady_clock::now();
  SPECWIRE_ASSIGN_OR_RETURN(const int64_t num_rows, CheckRuns(runs));
  if (passes_left_ == 0) return absl::InternalError("broken, as it was told");
  if (passes_left_ > 0) --passes_left_;
  logits_.clear();
  for (const ForwardRun& run : runs) Compute(run);
  num_rows_ += num_rows;
  const absl::Duration time = step_time_ + num_rows * row_time_;
  time_.Spend(start + absl::ToChronoNanoseconds(time));
  return absl::MakeConstSpan(logits_);
}

void SyntheticEngine::Compute(const ForwardRun& run) {
  auto* const sequence = static_cast<Sequence*>(run.kv);
  sequence->Append(run.tokens);
  const absl::Span<const uint64_t> states =
      sequence->states().last(static_cast<size_t>(run.num_logits));
  for (size_t i = 0; i < states.size(); ++i) {
    const int32_t next = language_.Next(states[i]);
    if (!run.best.empty()) {
      run.best[i] = next;
      continue;
    }
    const size_t row = logits_.size();
    logits_.resize(row + static_cast<size_t>(info_.vocab_size), kOthersLogit);
    logits_[row + static_cast<size_t>(next)] = 0;
  }
}

}  // namespace specwire::verifier
