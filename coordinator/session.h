// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/strand.h"
#include "common/rpc/stream.h"
#include "coordinator/choice.h"
#include "coordinator/coordinator_metrics.h"
#include "coordinator/request_validation.h"
#include "specwire/v1/generation.pb.h"

namespace specwire::coordinator {

// One Generate call: the client's stream and the call's choices. Everything
// runs on a strand, so no lock is held across a call, and no thread is its own.
// The call ends well when all choices have; a choice that fails fails the call.
//
// Thread safety: any thread.
// Lifetime: shared by its streams; it goes when the last of them has ended.
class Session final : public ChoiceHost {
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
  ~Session() override;
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
  // A node is taken for lost; see Choice.
  void OnNodeSuspect(const std::string& node_id, const absl::Status& why);
  // Drops the client if it has taken nothing for longer than `limit` though
  // there was something to take.
  void CheckStall(absl::Time now, absl::Duration limit);

 private:
  class ClientHandler;

  // A message that flow control has not taken: the choice that it tells of and
  // that choice's completion tokens told up to and including it; 0: none.
  struct Untaken {
    int choice = 0;
    int num_tokens = 0;
  };

  void Post(absl::AnyInvocable<void()> task) override;

  // The rest runs on the strand.
  void OnDelta(int choice, int num_tokens, v1::GenerateResponse delta) override;
  void OnPrompt(v1::GenerateResponse prompt) override;
  void OnEnded(int choice,
               const absl::Status& status,
               std::optional<v1::GenerateResponse> finished) override;
  void Start(absl::StatusOr<CheckedRequest> request);
  // Whether the request's tokens, or its drafts, may be made up.
  bool IsSynthetic() const;
  // Ends the call, and with it the choices that have not ended. Tells the
  // client `last`, if there is such a message, and the status.
  void End(const absl::Status& status,
           std::optional<v1::GenerateResponse> last = std::nullopt);
  void LogEnd(const absl::Status& status) const;
  // Tells the client now and then, if it wants to know, that it is not
  // forgotten.
  void ScheduleAlive();
  void OnAliveDue();

  // A message goes to the client.
  void NoteUntaken(Untaken untaken);
  void OnClientTook();
  void OnClientClosed(const absl::Status& status);

  const SessionEnvironment environment_;
  const absl::Time arrival_;
  const absl::Time deadline_;
  const Sender sender_;
  absl::AnyInvocable<void()> on_end_;

  std::optional<CheckedRequest> request_;
  ModelMetrics* model_metrics_ = nullptr;
  // By index; empty until the request has been checked.
  std::vector<std::unique_ptr<Choice>> choices_;
  bool ended_ = false;
  // For threads that are not the strand's.
  std::atomic<bool> gone_ = false;
  // In the order in which they were sent.
  std::deque<Untaken> untaken_;
  // It has been told something since the latest look.
  bool told_ = false;
  TimerThread::Id alive_id_ = TimerThread::kNone;
  // Since when the client has taken nothing; InfiniteFuture while there is
  // nothing to take. For CheckStall, from any thread.
  std::atomic<absl::Time> untaken_since_ = absl::InfiniteFuture();

  // Last: its tasks use the rest.
  Strand strand_;
};

}  // namespace specwire::coordinator
