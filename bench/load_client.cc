// SPDX-License-Identifier: Apache-2.0
#include "bench/load_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"

namespace specwire::bench {

class LoadClient::Call final
    : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Call(LoadClient* client, const v1::GenerateRequest& request, bool keep_times)
      : client_(client), request_(request), keep_times_(keep_times) {}

  void Start(v1::GenerationService::Stub* stub) {
    stub->async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (response_.has_delta()) {
      if (keep_times_) times_.push_back(absl::Now());
      if (!std::exchange(had_delta_, true)) client_->OnStarted();
      ++client_->num_deltas_;
      client_->num_tokens_ += response_.delta().token_ids_size();
    } else if (response_.has_started() && response_.started().synthetic()) {
      ++client_->num_marked_;
    }
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    if (!had_delta_) client_->OnStarted();
    client_->OnDone(this, status);
  }

  const std::vector<absl::Time>& times() const { return times_; }
  bool keep_times() const { return keep_times_; }

 private:
  LoadClient* const client_;
  const v1::GenerateRequest request_;
  const bool keep_times_;
  grpc::ClientContext context_;
  v1::GenerateResponse response_;
  bool had_delta_ = false;
  std::vector<absl::Time> times_;
};

LoadClient::LoadClient(const std::string& address, int num_channels) {
  for (int i = 0; i < num_channels; ++i) {
    stubs_.push_back(v1::GenerationService::NewStub(MakeChannel(address)));
  }
}

LoadClient::~LoadClient() { CancelAll(); }

void LoadClient::Open(const v1::GenerateRequest& request, bool keep_times) {
  auto call = std::make_unique<Call>(this, request, keep_times);
  Call* const started = call.get();
  const auto number = static_cast<size_t>(num_opened_++);
  {
    MutexLock lock(&mutex_);
    calls_.push_back(std::move(call));
  }
  started->Start(stubs_[number % stubs_.size()].get());
}

void LoadClient::CancelAll() {
  {
    MutexLock lock(&mutex_);
    for (const auto& call : calls_) call->Cancel();
  }
  WaitForEnds(absl::InfiniteDuration());
}

void LoadClient::OnStarted() {
  ++num_started_;
  MutexLock lock(&mutex_);
  changed_.NotifyAll();
}

void LoadClient::OnDone(Call* /*call*/, const grpc::Status& status) {
  MutexLock lock(&mutex_);
  if (!status.ok() && status.error_code() != grpc::StatusCode::CANCELLED) {
    ++num_failed_;
    if (failure_.empty()) {
      failure_ = absl::StrCat(status.error_code(), " ", status.error_message());
    }
  }
  ++num_done_;
  changed_.NotifyAll();
}

bool LoadClient::WaitForFirstDeltas(int64_t count, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(&mutex_);
  while (num_started_ < count) {
    if (!changed_.WaitUntil(&mutex_, deadline)) return num_started_ >= count;
  }
  return true;
}

bool LoadClient::WaitForEnds(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(&mutex_);
  while (num_done_ < num_opened_) {
    if (!changed_.WaitUntil(&mutex_, deadline)) return num_done_ == num_opened_;
  }
  return true;
}

std::string LoadClient::failure() const {
  MutexLock lock(&mutex_);
  return failure_;
}

std::vector<std::vector<absl::Time>> LoadClient::Times() const {
  std::vector<std::vector<absl::Time>> times;
  MutexLock lock(&mutex_);
  for (const auto& call : calls_) {
    if (call->keep_times()) times.push_back(call->times());
  }
  return times;
}

}  // namespace specwire::bench
