// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "bench/simulate/draft_side.h"
#include "bench/simulate/link.h"
#include "bench/simulate/simulation.h"
#include "bench/simulate/trace.h"
#include "bench/simulate/verify_side.h"
#include "bench/simulate/virtual_time.h"
#include "coordinator/request_machine.h"
#include "coordinator/speculation_priors.h"

namespace specwire::simulate {

// The coordinator's side of one request: a RequestMachine, and links to the
// nodes for what it wants done. The client takes tokens at once.
//
// Thread safety: one thread at a time.
// Lifetime: messages on their way refer to it, so it outlives the virtual time.
class Request {
 public:
  // All outlive the request.
  struct Context {
    const Settings* settings = nullptr;
    VirtualTime* time = nullptr;
    Random* random = nullptr;
    VerifySide* verifier = nullptr;
    DraftSide* drafter = nullptr;
    // Null: each adaptive request starts knowing nothing.
    coordinator::SpeculationPriors* priors = nullptr;
    const Trace* trace = nullptr;
    // Numbers streams across requests.
    int64_t* next_stream = nullptr;
  };
  using OnEnd = std::function<void(absl::Status, RequestResult)>;

  Request(const Context& context, OnEnd on_end);
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  void Start();

 private:
  // A stream to a node: its number and its two directions.
  struct Stream {
    Stream(const Context& context, const LinkDelay& delay)
        : number((*context.next_stream)++),
          out(context.time, context.random, delay),
          in(context.time, context.random, delay) {}
    const int64_t number;
    Link out;
    Link in;
  };

  // Carries out actions, and those that come of them, in order.
  void Carry(std::vector<coordinator::Action> actions);
  void Do(const coordinator::OpenVerifier& open);
  void Do(const coordinator::SendProposal& send);
  void Do(const coordinator::SendDecodeTune& tune);
  void Do(const coordinator::OpenDrafter& open);
  void Do(const coordinator::SendCommit& commit);
  void Do(const coordinator::SendRewind& rewind);
  void Do(const coordinator::SendDraftTune& tune);
  void Do(const coordinator::CloseVerifier& close);
  void Do(const coordinator::CloseDrafter& close);
  void Do(const coordinator::ArmDrafterTimer& arm);
  void Do(const coordinator::EmitTokens& emit);
  void Do(const coordinator::FinishRequest& finish);
  void OnProposal(int64_t stream, Proposal proposal, int32_t source);
  // The draft stream `source`, if it is the present one.
  Stream* Drafter(int32_t source);
  absl::Status CheckEnd(const coordinator::FinishRequest& finish) const;

  const Context context_;
  const OnEnd on_end_;
  const std::vector<int32_t> text_;
  coordinator::RequestMachine machine_;
  std::deque<coordinator::Action> actions_;
  bool carrying_ = false;
  std::optional<Stream> verifier_;
  std::optional<Stream> drafter_;
  int32_t source_ = 0;
  RequestResult result_;
};

}  // namespace specwire::simulate
