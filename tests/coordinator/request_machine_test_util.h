// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/draining.h"
#include "coordinator/request_machine.h"

namespace specwire::coordinator {

inline std::string Ids(const std::vector<int32_t>& ids) {
  return absl::StrCat("[", absl::StrJoin(ids, " "), "]");
}

// Actions as text, so that a test can list what it expects.
struct Printer {
  std::string operator()(const OpenVerifier& a) const {
    return absl::StrCat("OpenVerifier ",
                        Ids(a.tokens),
                        " source ",
                        a.source,
                        " until ",
                        a.decode_until,
                        " patience ",
                        absl::FormatDuration(a.patience),
                        " rows ",
                        a.max_draft_rows);
  }
  std::string operator()(const SendProposal& a) const {
    return absl::StrCat("SendProposal ",
                        a.proposal.source,
                        " @",
                        a.proposal.position,
                        " ",
                        Ids(a.proposal.tokens));
  }
  std::string operator()(const SendDecodeTune& a) const {
    return absl::StrCat(
        "SendDecodeTune",
        a.patience.has_value()
            ? absl::StrCat(" patience ", absl::FormatDuration(*a.patience))
            : "",
        a.decode_until.has_value() ? absl::StrCat(" until ", *a.decode_until)
                                   : "");
  }
  std::string operator()(const OpenDrafter& a) const {
    return absl::StrCat("OpenDrafter ", a.source, " ", Ids(a.tokens));
  }
  std::string operator()(const SendCommit& a) const {
    return absl::StrCat(
        "SendCommit ", a.source, " @", a.position, " ", Ids(a.tokens));
  }
  std::string operator()(const SendRewind& a) const {
    return absl::StrCat("SendRewind ", a.source, " @", a.position);
  }
  std::string operator()(const SendDraftTune& a) const {
    return absl::StrCat(
        "SendDraftTune ",
        a.source,
        a.run_length.has_value() ? absl::StrCat(" run ", *a.run_length) : "",
        a.window.has_value() ? absl::StrCat(" window ", *a.window) : "",
        a.min_survival.has_value() ? absl::StrCat(" survival ", *a.min_survival)
                                   : "");
  }
  std::string operator()(const CloseVerifier&) const { return "CloseVerifier"; }
  std::string operator()(const CloseDrafter& a) const {
    return absl::StrCat("CloseDrafter ", a.source);
  }
  std::string operator()(const ArmDrafterTimer& a) const {
    return absl::StrCat("ArmDrafterTimer ", a.source, " owed ", a.owed);
  }
  std::string operator()(const EmitTokens& a) const {
    return absl::StrCat("EmitTokens #",
                        a.first_index,
                        " ",
                        Ids(a.tokens),
                        " accepted ",
                        a.num_accepted);
  }
  std::string operator()(const FinishRequest& a) const {
    const char* reason = "";
    switch (a.reason) {
      case FinishReason::kNone:
        reason = "none";
        break;
      case FinishReason::kStop:
        reason = "stop";
        break;
      case FinishReason::kLength:
        reason = "length";
        break;
      case FinishReason::kAborted:
        reason = "aborted";
        break;
      case FinishReason::kError:
        reason = "error";
        break;
    }
    return absl::StrCat(
        "FinishRequest ",
        reason,
        a.stop_token_id.has_value() ? absl::StrCat(" ", *a.stop_token_id) : "",
        a.stop_text ? " text" : "",
        a.status.ok() ? "" : absl::StrCat(" ", a.status.ToString()));
  }
};

inline std::vector<std::string> Text(const std::vector<Action>& actions) {
  std::vector<std::string> text;
  for (const Action& action : actions) {
    text.push_back(std::visit(Printer(), action));
  }
  return text;
}

// A prompt of three tokens and ten to generate, in lock-step.
inline RequestParams Params() {
  RequestParams params;
  params.prompt = {1, 2, 3};
  params.max_tokens = 10;
  params.speculation.run_length = 2;
  params.speculation.window = 4;
  params.speculation.patience = absl::InfiniteDuration();
  params.vocab_size = 100;
  params.credit = 100;
  return params;
}

inline Proposal MakeRun(int32_t source,
                        int position,
                        int based_on,
                        std::vector<int32_t> tokens) {
  Proposal proposal;
  proposal.source = source;
  proposal.position = position;
  proposal.based_on = based_on;
  proposal.tokens = std::move(tokens);
  return proposal;
}

inline Commit MakeCommit(int position,
                         std::vector<int32_t> tokens,
                         int num_proposed = 0,
                         int num_accepted = 0) {
  Commit commit;
  commit.position = position;
  commit.tokens = std::move(tokens);
  commit.num_proposed = num_proposed;
  commit.num_accepted = num_accepted;
  return commit;
}

inline RequestMachine MakeStarted(const RequestParams& params = Params()) {
  RequestMachine machine(params);
  machine.Start();
  return machine;
}

inline const absl::Status kCrash = absl::UnavailableError("crashed");
inline const absl::Status kDrained = DrainingError("leaving");

}  // namespace specwire::coordinator
