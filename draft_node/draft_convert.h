// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"
#include "draft_node/draft_events.h"
#include "specwire/v1/draft.pb.h"

// Between the messages of DraftService and the drafter thread's structs.
// Errors are INVALID_ARGUMENT and name the field and its limit, or what is not
// supported yet.

namespace specwire::draft {

// Checks all that can be checked without the sequence. The result has no sink.
absl::StatusOr<OpenDraft> FromProto(const v1::DraftOpen& message);
absl::StatusOr<CommittedTokens> FromProto(const v1::DraftCommit& message);
Rewind FromProto(const v1::DraftRewind& message);
DraftTune FromProto(const v1::DraftTune& message);

v1::DraftResponse ToProto(const Proposal& proposal);

}  // namespace specwire::draft
