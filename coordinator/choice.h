// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/timer.h"
#include "common/rpc/stream.h"
#include "coordinator/coordinator_metrics.h"
#include "coordinator/membership.h"
#include "coordinator/registry.h"
#include "coordinator/reply.h"
#include "coordinator/request_machine.h"
#include "coordinator/request_validation.h"
#include "coordinator/speculation_priors.h"
#include "coordinator/stream_account.h"
#include "specwire/v1/draft.pb.h"
#include "specwire/v1/generation.pb.h"
#include "specwire/v1/verifier.pb.h"

namespace specwire::coordinator {

// What all sessions share. Outlives them.
struct SessionEnvironment {
  Registry* registry = nullptr;
  Membership* membership = nullptr;
  TimerThread* timer = nullptr;
  CoordinatorMetrics* metrics = nullptr;
  SpeculationPriors* priors = nullptr;
  absl::Duration drafter_deadline;
  absl::Duration stream_deadline;
};

// The call that a choice belongs to, as the choice sees it. It owns its
// choices: as long as somebody holds it, they are there.
class ChoiceHost : public std::enable_shared_from_this<ChoiceHost> {
 public:
  virtual ~ChoiceHost() = default;
  // Runs `task` on the call's strand. Any thread.
  virtual void Post(absl::AnyInvocable<void()> task) = 0;
  // Tells the client of tokens of a choice; with them it has been told
  // `num_tokens` of its completion.
  virtual void OnDelta(int choice,
                       int num_tokens,
                       v1::GenerateResponse delta) = 0;
  // Tells the client something of the prompt, before the first delta of choice
  // 0.
  virtual void OnPrompt(v1::GenerateResponse prompt) = 0;
  // A choice has ended: `finished` is its last message if `status` is OK. The
  // choice says nothing more.
  virtual void OnEnded(int choice,
                       const absl::Status& status,
                       std::optional<v1::GenerateResponse> finished) = 0;
};

// One of a Generate call's independent completions: owns its request machine
// and carries out what it wants done on the streams to a verifier and a
// drafter.
//
// Thread safety: everything on the host's strand.
// Lifetime: all that it is made from outlives it; its streams hold the host.
class Choice final {
 public:
  struct Context {
    ChoiceHost* host = nullptr;
    const SessionEnvironment* environment = nullptr;
    const CheckedRequest* request = nullptr;
    ModelMetrics* metrics = nullptr;
    absl::Time arrival;
    absl::Time deadline = absl::InfiniteFuture();
  };

  // `index` is the choice's place among the call's n.
  Choice(const Context& context, int index);
  ~Choice();
  Choice(const Choice&) = delete;
  Choice& operator=(const Choice&) = delete;

  // REQUIRES: called once, before all others.
  void Start();
  // The client has taken so many tokens of the completion.
  void OnClientTook(int count);
  // Ends it, if it has not ended.
  void Abort(const absl::Status& status);
  // A draft node has begun to take work.
  void OnDrafterAvailable();
  // A node is taken for lost: what the choice has there goes on elsewhere, and
  // what the node still says is not heard.
  void OnNodeSuspect(const std::string& node_id, const absl::Status& why);

  // Completion tokens told so far, resumed ones included.
  int num_tokens() const { return reply_.num_tokens(); }
  const SpeculationFigures& figures() const { return machine_.figures(); }
  bool ended() const { return ended_; }

 private:
  template <class In>
  class NodeHandler;

  struct VerifierStream {
    // Counts up; 0: none is open.
    int32_t number = 0;
    absl::Time opened;
    NodeInfo node;
    std::shared_ptr<ClientSender<v1::DecodeRequest>> sender;
    // The connection that it is on.
    std::shared_ptr<const NodeLink> link;
    StreamAccount account;
  };
  struct DrafterStream {
    // 0: none is open.
    int32_t source = 0;
    NodeInfo node;
    std::shared_ptr<ClientSender<v1::DraftRequest>> sender;
    std::shared_ptr<const NodeLink> link;
    StreamAccount account;
  };
  // A drafter's debt and when it is to be paid.
  struct Debt {
    int32_t source = 0;
    int64_t owed = 0;
    absl::Time due;
  };

  void OnDecoded(int32_t number, const v1::DecodeResponse& response);
  void OnPromptLogprobs(const v1::PromptLogprobs& logprobs);
  void OnDecodeClosed(int32_t number, const absl::Status& status);
  void OnDrafted(int32_t source, const v1::DraftResponse& response);
  void OnDraftClosed(int32_t source, const absl::Status& status);
  void LoseDrafter(int32_t source, const absl::Status& loss);
  void OnDebtDue();

  // Streams make progress or end: every now and then a node is asked whether
  // its stream is there and has all that was sent, choice_streams.cc.
  void CheckStreams();
  // Messages of the stream were lost, and so may be those of the next one on
  // its connection.
  void FailVerifierStream(const absl::Status& why);
  void FailDrafterStream(const absl::Status& why);
  // Whether a stream has ended for its connection's sake: not even a status
  // came, or one that nodes never give, as where a bit of a header that both
  // ends keep was flipped (a method's name, a deadline).
  bool TellsOfConnection(const absl::Status& status) const;
  static absl::Status Garbled(const absl::Status& status);
  void ScheduleCheck();
  void SendToVerifier(v1::DecodeRequest message);
  void SendToDrafter(v1::DraftRequest message);

  // Carries out actions, and those that come of them, in order.
  void Perform(std::vector<Action> actions);
  void Do(const OpenVerifier& open);
  void Do(const SendProposal& send);
  void Do(const SendDecodeTune& tune);
  void Do(const OpenDrafter& open);
  void Do(const SendCommit& commit);
  void Do(const SendRewind& rewind);
  void Do(const SendDraftTune& tune);
  void Do(const CloseVerifier& close);
  void Do(const CloseDrafter& close);
  void Do(const ArmDrafterTimer& arm);
  void Do(const EmitTokens& emit);
  void Do(const FinishRequest& finish);

  // Opens a stream to a draft node; false if there is none to open.
  bool OpenDraftNode(const OpenDrafter& open);
  // Why no verifier can be opened, `status` being what the registry says.
  absl::Status WhyNone(const absl::Status& status) const;
  // Cancels the verifier's stream and remembers why.
  void DropVerifier(const absl::Status& status);
  void LoseVerifier(const absl::Status& status);
  // Of a step that waited for a proposal, where the time has gone.
  void CountWait(const Commit& commit, absl::Duration wait);
  // What has come to the machine's figures goes to the metrics.
  void CountFigures();
  // Has the timer go off when the debt is due, or earlier.
  void ScheduleDebt();

  const Context context_;
  const SessionEnvironment& environment_;
  const CheckedRequest& request_;
  const int index_;
  Reply reply_;
  const SteadyClock clock_;
  // If the request is traced. The machine has it.
  std::optional<RequestTrace> trace_;
  RequestMachine machine_;
  bool ended_ = false;

  std::deque<Action> actions_;
  bool performing_ = false;

  // Positions of the prompt whose log-probabilities the client has been told;
  // nothing precedes the first.
  int num_prompt_told_ = 1;

  VerifierStream verifier_;
  int32_t verifier_number_ = 0;
  // By node id: nodes that this request has lost.
  std::set<std::string> lost_verifiers_;
  // Why the latest was lost, for whom it concerns.
  absl::Status last_loss_;
  DrafterStream drafter_;
  std::set<std::string> lost_drafters_;
  // The draft node that proposed last, the drafter of the last proposal that
  // was passed on, and the latest verifier.
  std::string proposer_node_;
  std::string proposer_;
  std::string verifier_name_;
  // Of proposer_node_ and verifier_name_, and of the latter alone, if set.
  std::optional<PairMetrics> pair_;
  std::optional<PairMetrics> local_pair_;
  // Of the machine's figures, what the metrics have been told; the lists are
  // not kept.
  SpeculationFigures counted_;
  // When the verifier's last commit came; from then until a proposal was passed
  // on.
  std::optional<absl::Time> committed_at_;
  std::optional<absl::Duration> draft_took_;

  // The latest; a new one makes those before it void. The timer is set anew
  // only when it has gone off, not for each.
  std::optional<Debt> debt_;
  TimerThread::Id timer_id_ = TimerThread::kNone;

  // When streams were checked last.
  absl::Time checked_;
  TimerThread::Id check_id_ = TimerThread::kNone;
};

}  // namespace specwire::coordinator
