// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/engine.h"
#include "common/sampling/logprobs.h"
#include "common/sampling/params.h"
#include "common/sampling/ratio.h"
#include "common/text/tokenizer_model.h"
#include "specwire/v1/types.pb.h"

// Between messages and domain structs: the only place that sees both.
//
// FromProto functions check what a message could do to the receiver: the
// lengths of lists and enumerators that do not exist. An error is
// INVALID_ARGUMENT and names the field and the limit. Whether values make sense
// is judged on the domain struct (ValidateSampling, ValidateStop,
// Tokenizer::Create).

namespace specwire {

// Longest salt that separates tenants.
inline constexpr size_t kMaxTenantSaltBytes = 64;

// Limits of lists, as types.proto states them; kMaxLogitBiases stands in
// common/sampling/params.h.
inline constexpr int kMaxStopTokenIds = 64;
inline constexpr int kMaxStopTexts = 16;
inline constexpr int kMaxVocabularySize = 1 << 20;
inline constexpr int kMaxMerges = 1 << 22;
inline constexpr int kMaxChatTemplateBytes = 1 << 20;
inline constexpr int kMaxEosTokenIds = 64;

// Absent fields take their defaults; an absent seed takes `default_seed`.
absl::StatusOr<SamplingParams> FromProto(const v1::SamplingParams& message,
                                         int64_t default_seed);
// Sets every field, the seed included.
v1::SamplingParams ToProto(const SamplingParams& params);

absl::StatusOr<StopCriteria> FromProto(const v1::StopCriteria& message);
v1::StopCriteria ToProto(const StopCriteria& stop);

// Unspecified means coupled; an unknown rule is an error.
absl::StatusOr<AcceptanceRule> FromProto(v1::AcceptanceRule rule);
v1::AcceptanceRule ToProto(AcceptanceRule rule);

// Most tokens in the distributions of one proposal together.
inline constexpr int kMaxProposalDistribution = 32 * kMaxDraftDistribution;

// The distributions of a proposal; whether they make sense is judged beside its
// tokens (ValidateDraft). At most kMaxProposalDistribution tokens in all.
absl::StatusOr<std::vector<DraftDistribution>> FromProto(
    const google::protobuf::RepeatedPtrField<v1::SparseDistribution>& messages);
void ToProto(absl::Span<const DraftDistribution> distributions,
             google::protobuf::RepeatedPtrField<v1::SparseDistribution>* out);

// Unspecified becomes kNone; an unknown reason is an error.
absl::StatusOr<FinishReason> FromProto(v1::FinishReason reason);
v1::FinishReason ToProto(FinishReason reason);
// "stop", "length", "abort", "error" (what vLLM calls them); "none" for kNone.
// For logs, JSON and labels.
absl::string_view FinishReasonName(FinishReason reason);

// NaN, which no reader should ever make, becomes -infinity.
v1::PositionLogprobs ToProto(const PositionLogprobs& logprobs);
// Log-probabilities of a position where `token` stands, with at most `top`
// candidates, checked: ids inside the vocabulary, no number above 0.
absl::StatusOr<PositionLogprobs> FromProto(const v1::PositionLogprobs& message,
                                           int32_t token,
                                           int top,
                                           int vocab_size);

// What the model does not know itself: the fingerprint of its tokenizer's
// vocabulary (hexadecimal SHA-256), and the node's limit of sequences.
v1::ModelDescription ToProto(const ModelInfo& info,
                             absl::string_view vocabulary_fingerprint,
                             int max_num_sequences);
// What a verifier says of its model, checked as a whole: sizes positive,
// digests hexadecimal SHA-256, EOS ids inside the vocabulary. num_layers stays
// 0; the fingerprint and the limit are left in the message.
absl::StatusOr<ModelInfo> FromProto(const v1::ModelDescription& message);

v1::TokenizerModel ToProto(const TokenizerModel& model);
absl::StatusOr<TokenizerModel> FromProto(const v1::TokenizerModel& message);

// The serialised form that GetModel carries in chunks.
std::string SerializeTokenizer(const TokenizerModel& model);
absl::StatusOr<TokenizerModel> ParseTokenizer(absl::string_view bytes);

// What a node asks of any sequence that is opened on it: choice >= 0,
// tenant_salt of at most 64 bytes. INVALID_ARGUMENT naming the field.
absl::Status CheckSequence(int32_t choice, absl::string_view tenant_salt);

}  // namespace specwire
