// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/model/engine.h"
#include "specwire/v1/verifier.pb.h"
#include "verifier_node/decode_events.h"

// Between the messages of VerifierService and the engine thread's structs.
// Errors are INVALID_ARGUMENT and name the field and its limit, or what is not
// supported yet.

namespace specwire::verifier {

// Checks all that can be checked without the sequence. The result has no sink.
absl::StatusOr<OpenSequence> FromProto(const v1::DecodeOpen& message,
                                       const ModelInfo& model);
absl::StatusOr<Proposal> FromProto(const v1::Proposal& message);
absl::StatusOr<VerifyTune> FromProto(const v1::DecodeTune& message);

// INVALID_ARGUMENT if too long for the model too. The result has no sink.
absl::StatusOr<OpenScore> FromProto(const v1::ScoreTokensRequest& message,
                                    const ModelInfo& model);

v1::DecodeResponse ToProto(const Commit& commit, const StepReport& report);
v1::DecodeResponse PromptToProto(const LogprobRun& run);
v1::ScoreTokensResponse ScoreToProto(const LogprobRun& run);

}  // namespace specwire::verifier
