// SPDX-License-Identifier: Apache-2.0
#include "bench/hop_roles.h"

#include <chrono>
#include <functional>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/strand.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/worker_stream.h"

namespace specwire::bench {
namespace {

// Tokens in a commit and in a proposal.
constexpr int kNumTokens = 3;
// No round takes so long.
constexpr absl::Duration kLost = absl::Seconds(10);

void Compute(absl::Duration duration) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end =
      Clock::now() + absl::ToChronoNanoseconds(duration);
  while (Clock::now() < end) {
  }
}

v1::DraftRequest MakeCommit() {
  v1::DraftRequest message;
  for (int i = 0; i < kNumTokens; ++i) {
    message.mutable_commit()->add_tokens(i);
  }
  return message;
}

v1::DraftResponse MakeProposal() {
  v1::DraftResponse message;
  for (int i = 0; i < kNumTokens; ++i) message.add_tokens(i);
  return message;
}

// Hands messages to a function.
template <class In>
class Forwarder final : public StreamHandler<In> {
 public:
  explicit Forwarder(std::function<void(In)> on_message)
      : on_message_(std::move(on_message)) {}
  void OnMessage(In message) override { on_message_(std::move(message)); }
  void OnClosed(absl::Status /*status*/) override {}

 private:
  const std::function<void(In)> on_message_;
};

// A stream whose messages a worker answers, each by calling `answer`.
template <class In, class Out>
grpc::ServerBidiReactor<In, Out>* StartWorkerStream(
    grpc::CallbackServerContext* context,
    HopWorker* worker,
    std::function<void(ServerSender<Out>*)> answer) {
  using Stream = WorkerStream<In, Out, HopWorker::Task>;
  return StartServerStream<In, Out>(
      context, StreamLimits(), [&](const auto& sender) {
        return std::make_shared<Stream>(
            worker->worker(),
            sender,
            [answer, sender](const In& /*message*/, bool /*first*/)
                -> absl::StatusOr<HopWorker::Task> {
              return [answer, sender] { answer(sender.get()); };
            });
      });
}

// What both streams of a coordinator share.
struct Call {
  std::shared_ptr<ClientSender<v1::DecodeRequest>> verifier;
  std::shared_ptr<ClientSender<v1::DraftRequest>> drafter;
  Strand strand;
};

}  // namespace

HopWorker::HopWorker(absl::Duration work)
    : work_(work), worker_({.thread_name = "hop_worker"}) {
  worker_.Start(this);
}

void HopWorker::OnEvent(Worker::StreamId /*stream*/, Task task) {
  task_ = std::move(task);
}

absl::Duration HopWorker::Work() {
  if (task_ == nullptr) return absl::InfiniteDuration();
  Compute(work_);
  std::exchange(task_, nullptr)();
  return absl::ZeroDuration();
}

void RoundTimes::Begin() {
  MutexLock lock(&mutex_);
  begin_ = absl::Now();
}

void RoundTimes::End() {
  MutexLock lock(&mutex_);
  if (begin_ == absl::InfinitePast()) return;
  rounds_.push_back(absl::ToDoubleMicroseconds(absl::Now() - begin_));
  changed_.NotifyAll();
}

std::vector<double> RoundTimes::Take(size_t count) {
  MutexLock lock(&mutex_);
  while (rounds_.size() < count && changed_.WaitFor(&mutex_, kLost)) {
  }
  return std::exchange(rounds_, {});
}

grpc::ServerBidiReactor<v1::DraftRequest, v1::DraftResponse>* HopDrafter::Draft(
    grpc::CallbackServerContext* context) {
  using In = v1::DraftRequest;
  using Out = v1::DraftResponse;
  if (worker_ != nullptr) {
    return StartWorkerStream<In, Out>(
        context, worker_, [](auto* sender) { sender->Send(MakeProposal()); });
  }
  return StartServerStream<In, Out>(
      context, StreamLimits(), [](const auto& sender) {
        return std::make_shared<Forwarder<In>>(
            [sender](const In& /*message*/) { sender->Send(MakeProposal()); });
      });
}

grpc::ServerBidiReactor<v1::DecodeRequest, v1::DecodeResponse>*
HopVerifier::Decode(grpc::CallbackServerContext* context) {
  return StartWorkerStream<v1::DecodeRequest, v1::DecodeResponse>(
      context, worker_, [this](auto* sender) {
        times_->End();
        Compute(pass_);
        v1::DecodeResponse commit;
        for (int i = 0; i < kNumTokens; ++i) commit.add_tokens(i);
        times_->Begin();
        sender->Send(std::move(commit));
      });
}

void StartHopCoordinator(const std::string& verifier,
                         const std::string& drafter) {
  // Shared by the handlers, which go when their streams have ended.
  const auto call = std::make_shared<Call>();
  const auto verifier_stub =
      v1::VerifierService::NewStub(MakeChannel(verifier));
  const auto drafter_stub = v1::DraftService::NewStub(MakeChannel(drafter));
  call->drafter = StartClientStream<v1::DraftRequest, v1::DraftResponse>(
      ClientStreamOptions(),
      std::make_shared<Forwarder<v1::DraftResponse>>(
          [call](const v1::DraftResponse& proposal) {
            call->strand.Post([call, proposal] {
              v1::DecodeRequest message;
              *message.mutable_proposal()->mutable_tokens() = proposal.tokens();
              call->verifier->Send(std::move(message));
            });
          }),
      [&](grpc::ClientContext* context, auto* reactor) {
        drafter_stub->async()->Draft(context, reactor);
      });
  call->verifier = StartClientStream<v1::DecodeRequest, v1::DecodeResponse>(
      ClientStreamOptions(),
      std::make_shared<Forwarder<v1::DecodeResponse>>(
          [call](const v1::DecodeResponse& commit) {
            call->strand.Post([call, commit] {
              v1::DraftRequest message;
              *message.mutable_commit()->mutable_tokens() = commit.tokens();
              call->drafter->Send(std::move(message));
            });
          }),
      [&](grpc::ClientContext* context, auto* reactor) {
        verifier_stub->async()->Decode(context, reactor);
      });
  // The first proposal, with which the rounds begin.
  call->verifier->Send(v1::DecodeRequest());
}

std::shared_ptr<ClientSender<v1::DraftRequest>> StartHopCaller(
    const std::string& drafter, HopWorker* worker, RoundTimes* times) {
  // Shared with the handler; it has the sender as soon as there is one.
  struct State {
    Mutex mutex;
    std::shared_ptr<ClientSender<v1::DraftRequest>> sender
        ABSL_GUARDED_BY(mutex);
  };
  const auto state = std::make_shared<State>();
  const auto stub = v1::DraftService::NewStub(MakeChannel(drafter));
  const auto next = [state, times] {
    times->End();
    times->Begin();
    MutexLock lock(&state->mutex);
    state->sender->Send(MakeCommit());
  };
  const HopWorker::Worker::StreamId stream =
      worker != nullptr ? worker->worker()->Open() : HopWorker::Worker::kNone;
  MutexLock lock(&state->mutex);
  state->sender = StartClientStream<v1::DraftRequest, v1::DraftResponse>(
      ClientStreamOptions(),
      std::make_shared<Forwarder<v1::DraftResponse>>(
          [worker, stream, next](const v1::DraftResponse& /*proposal*/) {
            if (worker == nullptr) return next();
            worker->worker()->Post(stream, next, 0);
          }),
      [&](grpc::ClientContext* context, auto* reactor) {
        stub->async()->Draft(context, reactor);
      });
  times->Begin();
  state->sender->Send(MakeCommit());
  return state->sender;
}

}  // namespace specwire::bench
