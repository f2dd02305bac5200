// SPDX-License-Identifier: Apache-2.0
#include "bench/relay.h"

#include <deque>
#include <mutex>
#include <utility>

#include "common/base/mutex.h"
#include "common/rpc/channel.h"

namespace specwire::bench {
namespace {

constexpr int kSource = 1;
constexpr int kNoLimit = 1 << 30;

// Messages that a reactor has yet to write. Whoever is told to start a write,
// or to end, does so without the lock.
template <class Out>
class Outbox {
 public:
  // What to write now, if anything.
  const Out* Push(Out message) {
    MutexLock lock(&mutex_);
    if (closed_) return nullptr;
    queue_.push_back(std::move(message));
    return queue_.size() == 1 ? &queue_.front() : nullptr;
  }
  // The write has ended; `*end`: the reactor may end now.
  const Out* Next(bool* end) {
    MutexLock lock(&mutex_);
    queue_.pop_front();
    *end = queue_.empty() && closed_;
    return queue_.empty() ? nullptr : &queue_.front();
  }
  // Takes no more. Returns true if the reactor may end now, false if it may
  // when its writes have ended or has been told so before.
  bool Close() {
    MutexLock lock(&mutex_);
    if (closed_) return false;
    closed_ = true;
    // The first is being written.
    if (!queue_.empty()) queue_.resize(1);
    return queue_.empty();
  }

 private:
  Mutex mutex_;
  std::deque<Out> queue_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

class Call;

class ClientSide final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  explicit ClientSide(std::shared_ptr<Call> call) : call_(std::move(call)) {}
  void Send(v1::GenerateResponse message) {
    if (const auto* next = outbox_.Push(std::move(message))) StartWrite(next);
  }
  void End() {
    if (outbox_.Close()) Finish(grpc::Status::OK);
  }
  void OnWriteDone(bool /*ok*/) override {
    bool end = false;
    if (const auto* next = outbox_.Next(&end)) StartWrite(next);
    if (end) Finish(grpc::Status::OK);
  }
  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<Call> call_;
  Outbox<v1::GenerateResponse> outbox_;
};

template <class Out, class In>
class NodeSide final : public grpc::ClientBidiReactor<Out, In> {
 public:
  using OnMessage = void (Call::*)(const In&);
  NodeSide(std::shared_ptr<Call> call, OnMessage on_message)
      : call_(std::move(call)), on_message_(on_message) {}

  grpc::ClientContext* context() { return &context_; }
  void Begin() {
    this->AddHold();
    this->StartRead(&incoming_);
    this->StartCall();
  }
  void Send(Out message) {
    if (const auto* next = outbox_.Push(std::move(message))) {
      this->StartWrite(next);
    }
  }
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool /*ok*/) override {
    bool end = false;
    if (const auto* next = outbox_.Next(&end)) this->StartWrite(next);
    if (end) this->RemoveHold();
  }
  void OnDone(const grpc::Status& /*status*/) override { delete this; }

 private:
  const std::shared_ptr<Call> call_;
  const OnMessage on_message_;
  grpc::ClientContext context_;
  Outbox<Out> outbox_;
  In incoming_;
};

// One Generate call. Its three reactors own it and delete themselves; it
// reaches them only until End().
class Call final : public std::enable_shared_from_this<Call> {
 public:
  grpc::ServerWriteReactor<v1::GenerateResponse>* Start(
      const v1::GenerateRequest& request,
      v1::VerifierService::Stub* verifier,
      v1::DraftService::Stub* drafter) {
    client_ = new ClientSide(shared_from_this());
    verifier_ = new NodeSide<v1::DecodeRequest, v1::DecodeResponse>(
        shared_from_this(), &Call::OnCommit);
    drafter_ = new NodeSide<v1::DraftRequest, v1::DraftResponse>(
        shared_from_this(), &Call::OnProposal);
    prompt_length_ = request.token_ids().ids_size();
    client_->Send(Started(request));
    verifier->async()->Decode(verifier_->context(), verifier_);
    drafter->async()->Draft(drafter_->context(), drafter_);
    grpc::ServerWriteReactor<v1::GenerateResponse>* const reactor = client_;
    const std::lock_guard lock(mutex_);
    drafter_->Begin();
    verifier_->Begin();
    drafter_->Send(DraftOpen(request));
    verifier_->Send(DecodeOpen(request));
    return reactor;
  }

  void OnCommit(const v1::DecodeResponse& commit) {
    v1::DraftRequest to_drafter;
    to_drafter.mutable_commit()->set_position(commit.position());
    *to_drafter.mutable_commit()->mutable_tokens() = commit.tokens();
    v1::GenerateResponse to_client;
    to_client.mutable_delta()->set_first_index(commit.position() -
                                               prompt_length_);
    *to_client.mutable_delta()->mutable_token_ids() = commit.tokens();
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    drafter_->Send(std::move(to_drafter));
    client_->Send(std::move(to_client));
  }

  void OnProposal(const v1::DraftResponse& proposal) {
    v1::DecodeRequest message;
    message.mutable_proposal()->set_source(kSource);
    message.mutable_proposal()->set_position(proposal.position());
    message.mutable_proposal()->set_based_on(proposal.based_on());
    *message.mutable_proposal()->mutable_tokens() = proposal.tokens();
    const std::lock_guard lock(mutex_);
    if (!ended_) verifier_->Send(std::move(message));
  }

  void End() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
    // Their reads fail, which ends them.
    verifier_->context()->TryCancel();
    drafter_->context()->TryCancel();
    client_->End();
  }

 private:
  static v1::GenerateResponse Started(const v1::GenerateRequest& request) {
    v1::GenerateResponse message;
    *message.mutable_started()->mutable_prompt_token_ids() =
        request.token_ids().ids();
    return message;
  }

  static v1::DecodeRequest DecodeOpen(const v1::GenerateRequest& request) {
    v1::DecodeRequest message;
    v1::DecodeOpen* const open = message.mutable_open();
    *open->mutable_tokens() = request.token_ids().ids();
    open->set_prompt_length(request.token_ids().ids_size());
    *open->mutable_sampling() = request.sampling();
    open->set_max_tokens(request.stop().max_tokens());
    open->set_rule(v1::ACCEPTANCE_RULE_COUPLED);
    open->set_source(kSource);
    open->set_decode_until(kNoLimit);
    open->set_patience_us(request.speculation().patience_us());
    open->set_max_draft_rows(request.speculation().window());
    return message;
  }

  static v1::DraftRequest DraftOpen(const v1::GenerateRequest& request) {
    v1::DraftRequest message;
    v1::DraftOpen* const open = message.mutable_open();
    *open->mutable_tokens() = request.token_ids().ids();
    open->set_prompt_length(request.token_ids().ids_size());
    *open->mutable_sampling() = request.sampling();
    open->set_rule(v1::ACCEPTANCE_RULE_COUPLED);
    open->set_run_length(request.speculation().max_draft_tokens());
    open->set_window(request.speculation().window());
    return message;
  }

  int prompt_length_ = 0;
  // Recursive: gRPC may react to a start of ours before it returns.
  std::recursive_mutex mutex_;
  // Valid until ended_.
  ClientSide* client_ = nullptr;
  NodeSide<v1::DecodeRequest, v1::DecodeResponse>* verifier_ = nullptr;
  NodeSide<v1::DraftRequest, v1::DraftResponse>* drafter_ = nullptr;
  bool ended_ = false;
};

void ClientSide::OnCancel() { call_->End(); }

template <class Out, class In>
void NodeSide<Out, In>::OnReadDone(bool ok) {
  if (ok) {
    ((*call_).*on_message_)(incoming_);
    incoming_.Clear();
    this->StartRead(&incoming_);
    return;
  }
  call_->End();
  if (outbox_.Close()) this->RemoveHold();
}

}  // namespace

Relay::Relay(const std::vector<std::string>& verifiers,
             const std::vector<std::string>& drafters) {
  for (const std::string& address : verifiers) {
    verifiers_.push_back(v1::VerifierService::NewStub(MakeChannel(address)));
  }
  for (const std::string& address : drafters) {
    drafters_.push_back(v1::DraftService::NewStub(MakeChannel(address)));
  }
}

grpc::ServerWriteReactor<v1::GenerateResponse>* Relay::Generate(
    grpc::CallbackServerContext* /*context*/,
    const v1::GenerateRequest* request) {
  const size_t number = num_calls_++;
  return std::make_shared<Call>()->Start(
      *request,
      verifiers_[number % verifiers_.size()].get(),
      drafters_[number % drafters_.size()].get());
}

}  // namespace specwire::bench
