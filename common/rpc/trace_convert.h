// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "common/drafting/messages.h"
#include "specwire/v1/draft.pb.h"
#include "specwire/v1/types.pb.h"
#include "specwire/v1/verifier.pb.h"

// Between messages and domain structs, as common/rpc/convert.h, of traces.

namespace specwire {

v1::DraftOutcome ToProto(DraftOutcome outcome);
v1::TargetProbability ToProto(const TargetProbability& probability);
void ToProto(const CommitTrace& trace, v1::DecodeTrace* out);
void ToProto(const ProposalTrace& trace, v1::DraftResponseTrace* out);

// INVALID_ARGUMENT if it is not what a sound verifier of `vocab_size` tokens
// tells of a commit of `num_tokens` tokens: too many entries, an unknown
// outcome, a token outside the vocabulary, a number that is none or negative.
absl::StatusOr<CommitTrace> FromProto(const v1::DecodeTrace& message,
                                      int num_tokens,
                                      int vocab_size);
// Nothing that is sent is trusted to be right: estimates that are none are left
// out, times that are none become 0.
ProposalTrace FromProto(const v1::DraftResponseTrace& message, int num_tokens);

}  // namespace specwire
