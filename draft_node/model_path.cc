// SPDX-License-Identifier: Apache-2.0
#include "draft_node/model_path.h"

#include <algorithm>
#include <cstddef>

#include "common/base/status_macros.h"
#include "common/drafting/messages.h"

namespace specwire::draft {
namespace {

constexpr size_t kPrefillRows = 256;
static_assert(kPrefillRows <= Engine::kMaxRows);

}  // namespace

ModelPath::ModelPath(Engine* engine)
    : engine_(engine), kv_(engine->NewSequence()) {}

int ModelPath::Room(absl::Span<const int32_t> path) {
  // The last token of the path is computed anew in any case, for its logits.
  const size_t limit = std::min(cached_.size(), path.size() - 1);
  const auto common = static_cast<size_t>(
      std::mismatch(cached_.begin(),
                    cached_.begin() + static_cast<std::ptrdiff_t>(limit),
                    path.begin())
          .first -
      cached_.begin());
  kv_->Truncate(static_cast<int>(common));
  cached_.resize(common);

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

absl::StatusOr<absl::Span<const float>> ModelPath::LogitsAfter(
    absl::Span<const int32_t> path) {
  while (path.size() - cached_.size() > kPrefillRows) {
    SPECWIRE_RETURN_IF_ERROR(
        Forward(path.subspan(cached_.size(), kPrefillRows), 0).status());
  }
  return Forward(path.subspan(cached_.size()), 1);
}

absl::StatusOr<absl::Span<const float>> ModelPath::LogitsAfterNext(
    int32_t token) {
  return Forward(absl::MakeConstSpan(&token, 1), 1);
}

absl::StatusOr<absl::Span<const float>> ModelPath::Forward(
    absl::Span<const int32_t> tokens, int num_logits) {
  const ForwardRun run = {
      .kv = kv_.get(), .tokens = tokens, .num_logits = num_logits};
  SPECWIRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                            engine_->Forward(absl::MakeConstSpan(&run, 1)));
  cached_.insert(cached_.end(), tokens.begin(), tokens.end());
  return logits;
}

}  // namespace specwire::draft
