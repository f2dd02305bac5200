// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/drafting/messages.h"
#include "coordinator/request_machine.h"
#include "coordinator/request_validation.h"
#include "specwire/v1/draft.pb.h"
#include "specwire/v1/generation.pb.h"
#include "specwire/v1/verifier.pb.h"

namespace specwire::coordinator {

// Between what a request machine says and hears and the messages that carry it.

v1::DecodeRequest MakeDecodeOpen(const CheckedRequest& request,
                                 const OpenVerifier& open,
                                 int choice = 0);
v1::DecodeRequest MakeProposal(const Proposal& proposal);
v1::DecodeRequest MakeDecodeTune(const SendDecodeTune& tune);

v1::DraftRequest MakeDraftOpen(const CheckedRequest& request,
                               const OpenDrafter& open,
                               int choice = 0);
v1::DraftRequest MakeDraftCommit(const SendCommit& commit);
v1::DraftRequest MakeDraftRewind(const SendRewind& rewind);
v1::DraftRequest MakeDraftTune(const SendDraftTune& tune);

// INVALID_ARGUMENT naming the field if the response is not one that a sound
// verifier can send: numbers negative or out of proportion, an id outside the
// vocabulary, an unknown finish reason. Whether it fits the log is the
// machine's to judge.
// `logprobs`: how many candidates were asked for, if any.
absl::StatusOr<Commit> ParseCommit(const v1::DecodeResponse& response,
                                   int vocab_size,
                                   std::optional<int> logprobs = std::nullopt);
// OK if these can be the log-probabilities of the request's prompt from that
// position on.
absl::Status CheckPromptLogprobs(const v1::PromptLogprobs& logprobs,
                                 const CheckedRequest& request);
// As it came: the machine judges it.
Proposal ParseProposal(const v1::DraftResponse& response, int32_t source);

// A pass as it is told.
v1::PassTrace MakePassTrace(const TracedPass& pass, const Tokenizer& tokenizer);

// The first message of a reply: every value in force.
v1::GenerateResponse MakeStarted(const CheckedRequest& request);
// What comes behind it: the text, if it is to be repeated, and the first entry
// of the log-probabilities, that of the token which nothing precedes. Nothing
// if the request asks for neither.
std::optional<v1::GenerateResponse> MakePrompt(const CheckedRequest& request);
// `drafter` is the name of the drafter that proposed last.
v1::SpeculationStats MakeStats(const SpeculationFigures& figures,
                               const SpeculationSettings& settings,
                               const std::string& drafter);

}  // namespace specwire::coordinator
