// SPDX-License-Identifier: Apache-2.0
#include "draft_node/oracle_drafter.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/drafting/messages.h"
#include "common/sampling/greedy.h"
#include "common/text/tokenizer.h"

namespace specwire::draft {
namespace {

constexpr size_t kPrefillRows = 256;
static_assert(kPrefillRows <= Engine::kMaxRows);

// One sequence's cache and the tokens that are in it.
class OracleSequence final : public DraftSequence {
 public:
  explicit OracleSequence(Engine* engine)
      : engine_(engine), kv_(engine->NewSequence()) {}

  absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                   int max_tokens) override {
    DropWhatDiffers(path);
    max_tokens = std::min(max_tokens, TokensWithRoom(path));
    DraftRun run;
    if (max_tokens < 1) return run;
    SPECWIRE_ASSIGN_OR_RETURN(int32_t token, Prefill(path));
    run.tokens.push_back(token);
    while (static_cast<int>(run.tokens.size()) < max_tokens) {
      SPECWIRE_ASSIGN_OR_RETURN(token, Compute(absl::MakeConstSpan(&token, 1)));
      run.tokens.push_back(token);
    }
    return run;
  }

 private:
  // Rolls the cache back to what it has in common with `path`. The last token
  // of the path is computed anew in any case, for its logits.
  void DropWhatDiffers(absl::Span<const int32_t> path) {
    const size_t limit = std::min(cached_.size(), path.size() - 1);
    const auto common = static_cast<size_t>(
        std::mismatch(cached_.begin(),
                      cached_.begin() + static_cast<std::ptrdiff_t>(limit),
                      path.begin())
            .first -
        cached_.begin());
    kv_->Truncate(static_cast<int>(common));
    cached_.resize(common);
  }

  // Tokens that can be proposed behind `path` before context or cache are full.
  int TokensWithRoom(absl::Span<const int32_t> path) const {
    const int block_size = engine_->kv_block_size();
    const int64_t own = (kv_->length() + block_size - 1) / block_size;
    const int64_t free =
        engine_->kv_blocks_total() - engine_->kv_blocks_used() + own;
    const int64_t positions =
        std::min<int64_t>(free * block_size, engine_->info().max_model_len);
    // The last proposed token itself is not computed.
    const int64_t room = positions - static_cast<int64_t>(path.size()) + 1;
    return static_cast<int>(std::clamp<int64_t>(room, 0, kMaxProposalTokens));
  }

  // Computes what of `path` is not cached; returns the token that follows it.
  absl::StatusOr<int32_t> Prefill(absl::Span<const int32_t> path) {
    while (path.size() - cached_.size() > kPrefillRows) {
      SPECWIRE_RETURN_IF_ERROR(
          Forward(path.subspan(cached_.size(), kPrefillRows), 0).status());
    }
    return Compute(path.subspan(cached_.size()));
  }

  absl::StatusOr<int32_t> Compute(absl::Span<const int32_t> tokens) {
    SPECWIRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                              Forward(tokens, 1));
    const int32_t token = ArgMax(logits);
    if (token < 0) return absl::InternalError("the logits are not numbers");
    return token;
  }

  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const int32_t> tokens, int num_logits) {
    const ForwardRun run = {
        .kv = kv_.get(), .tokens = tokens, .num_logits = num_logits};
    SPECWIRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                              engine_->Forward(absl::MakeConstSpan(&run, 1)));
    cached_.insert(cached_.end(), tokens.begin(), tokens.end());
    return logits;
  }

  Engine* const engine_;
  const std::unique_ptr<KvSequence> kv_;
  // Tokens whose keys and values are cached.
  std::vector<int32_t> cached_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<OracleDrafter>> OracleDrafter::Create(
    std::unique_ptr<Engine> engine) {
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                            Tokenizer::Create(engine->tokenizer_model()));
  // The constructor is private.
  return std::unique_ptr<OracleDrafter>(
      new OracleDrafter(std::move(engine), tokenizer->fingerprint()));
}

OracleDrafter::OracleDrafter(std::unique_ptr<Engine> engine,
                             std::string fingerprint)
    : engine_(std::move(engine)),
      vocabulary_fingerprint_(std::move(fingerprint)) {}

std::unique_ptr<DraftSequence> OracleDrafter::NewSequence(
    const DraftSequenceParams& /*params*/) {
  return std::make_unique<OracleSequence>(engine_.get());
}

}  // namespace specwire::draft
