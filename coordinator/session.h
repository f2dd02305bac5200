// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/strand.h"
#include "common/base/timer.h"
#include "common/rpc/stream.h"
#include "coordinator/coordinator_metrics.h"
#include "coordinator/membership.h"
#include "coordinator/registry.h"
#include "coordinator/reply.h"
#include "coordinator/request_machine.h"
#include "coordinator/request_validation.h"
#include "specwire/v1/draft.pb.h"
#include "specwire/v1/generation.pb.h"
#include "specwire/v1/verifier.pb.h"

namespace specwire::coordinator {

// What all sessions share. Outlives them.
struct SessionEnvironment {
  Registry* registry = nullptr;
  const Membership* membership = nullptr;
  TimerThread* timer = nullptr;
  CoordinatorMetrics* metrics = nullptr;
  absl::Duration drafter_deadline;
};

// One Generate call: owns the request machine and carries out what it wants
// done on the call's three streams (client, verifier, drafter). Everything runs
// on a strand, so no lock is held across a call, and no thread is its own.
//
// Thread safety: any thread.
// Lifetime: shared by its streams; it goes when the last of them has ended.
class Session final : public std::enable_shared_from_this<Session> {
 public:
  using Sender = std::shared_ptr<ServerSender<v1::GenerateResponse>>;

  struct Call {
    Sender sender;
    absl::Time arrival;
    absl::Time deadline = absl::InfiniteFuture();
    // Called once, when the request has ended, before the client is told.
    absl::AnyInvocable<void()> on_end;
  };

  Session(const SessionEnvironment& environment, Call call);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // What the client's stream is to be told to. REQUIRES: called once.
  std::shared_ptr<WriterHandler> MakeClientHandler();
  // The request has been checked, or refused. REQUIRES: called once.
  void Begin(absl::StatusOr<CheckedRequest> request);
  // The request has ended, or its client has gone: nothing more is worth doing.
  bool gone() const { return gone_; }
  // Ends the request with an error.
  void Fail(const absl::Status& status);
  // A draft node has begun to take work.
  void OnDrafterAvailable();

 private:
  class ClientHandler;
  template <class In>
  class NodeHandler;

  struct VerifierStream {
    // Counts up; 0: none is open.
    int32_t number = 0;
    NodeInfo node;
    std::shared_ptr<ClientSender<v1::DecodeRequest>> sender;
  };
  struct DrafterStream {
    // 0: none is open.
    int32_t source = 0;
    NodeInfo node;
    std::shared_ptr<ClientSender<v1::DraftRequest>> sender;
  };
  // A drafter's debt and when it is to be paid.
  struct Debt {
    int32_t source = 0;
    int64_t owed = 0;
    absl::Time due;
  };

  void Post(absl::AnyInvocable<void()> task);

  // The rest runs on the strand.
  void Start(absl::StatusOr<CheckedRequest> request);
  // Tells the client `last`, if there is such a message, and that it has ended.
  void End(const absl::Status& status,
           std::optional<v1::GenerateResponse> last = std::nullopt);
  bool active() const { return machine_.has_value() && !ended_; }

  void OnClientTook();
  void OnClientClosed(const absl::Status& status);
  void OnDecoded(int32_t number, const v1::DecodeResponse& response);
  void OnDecodeClosed(int32_t number, const absl::Status& status);
  void OnDrafted(int32_t source, const v1::DraftResponse& response);
  void OnDraftClosed(int32_t source, const absl::Status& status);
  void OnDebtsDue();

  // Carries out actions, and those that come of them, in order.
  void Perform(std::vector<Action> actions);
  void Do(const OpenVerifier& open);
  void Do(const SendProposal& send);
  void Do(const SendDecodeTune& tune);
  void Do(const OpenDrafter& open);
  void Do(const SendCommit& commit);
  void Do(const SendRewind& rewind);
  void Do(const CloseVerifier& close);
  void Do(const CloseDrafter& close);
  void Do(const ArmDrafterTimer& arm);
  void Do(const EmitTokens& emit);
  void Do(const FinishRequest& finish);

  // Cancels the verifier's stream and remembers why.
  void DropVerifier(const absl::Status& status);
  void LoseVerifier(const absl::Status& status);
  // What has come to the machine's figures goes to the metrics.
  void CountFigures();
  void ScheduleDebts();

  const SessionEnvironment environment_;
  const absl::Time arrival_;
  const absl::Time deadline_;
  const Sender sender_;
  absl::AnyInvocable<void()> on_end_;

  std::optional<CheckedRequest> request_;
  ModelMetrics* model_metrics_ = nullptr;
  std::optional<RequestMachine> machine_;
  std::optional<Reply> reply_;
  bool ended_ = false;
  // For threads that are not the strand's.
  std::atomic<bool> gone_ = false;
  // For each message that flow control has not taken, the completion tokens
  // told up to and including it.
  std::deque<int> untaken_;

  std::deque<Action> actions_;
  bool performing_ = false;

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
  // Of proposer_node_ and verifier_name_, if set.
  std::optional<PairMetrics> pair_;
  // Of the machine's figures, what the metrics have been told; the lists are
  // not kept.
  SpeculationFigures counted_;

  // In the order in which they are due.
  std::deque<Debt> debts_;
  TimerThread::Id timer_id_ = TimerThread::kNone;

  // Last: its tasks use the rest.
  Strand strand_;
};

}  // namespace specwire::coordinator
