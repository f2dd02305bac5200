// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/load.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "common/rpc/status.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "grpcpp/support/status.h"

namespace specwire::cli::bench {
namespace {

// How often progress is told, and an interrupt noticed at the latest.
constexpr absl::Duration kTick = absl::Milliseconds(200);

}  // namespace

// One stream. gRPC calls it from threads of its own, one call at a time.
class LoadGenerator::Call final
    : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Call(LoadGenerator* owner, Record record, v1::GenerateRequest request)
      : owner_(owner),
        record_(std::move(record)),
        request_(std::move(request)) {}

  // The call may be gone when it returns.
  void Start(Stub* stub, absl::Duration time_left) {
    if (time_left < absl::InfiniteDuration()) {
      context_.set_deadline(absl::ToChronoTime(absl::Now() + time_left));
    }
    stub->async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    record_.Add(response_, owner_->Now());
    has_finished_ = has_finished_ || response_.has_finished();
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    if (has_finished_) {
      // All has come; what happens to the connection behind it costs nothing.
      record_.status = absl::OkStatus();
    } else {
      record_.done = owner_->Now();
      record_.status =
          status.ok()
              ? absl::InternalError("the reply ended before its last message")
              : FromGrpcStatus(status);
    }
    owner_->OnEnd(this, std::move(record_));
  }

 private:
  LoadGenerator* const owner_;
  Record record_;
  const v1::GenerateRequest request_;
  grpc::ClientContext context_;
  v1::GenerateResponse response_;
  bool has_finished_ = false;
};

LoadGenerator::LoadGenerator(Settings settings)
    : settings_(std::move(settings)), start_(SteadyNow()) {}

LoadGenerator::~LoadGenerator() = default;

absl::Time LoadGenerator::SteadyNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

absl::Duration LoadGenerator::Now() const { return SteadyNow() - start_; }

void LoadGenerator::StartCall(const Block& block,
                              int64_t index,
                              absl::Duration scheduled) {
  Record record;
  record.index = index;
  record.mode = block.mode;
  record.question =
      static_cast<size_t>(index) % std::max<size_t>(settings_.num_questions, 1);
  record.block = block.number;
  record.scheduled = scheduled;
  v1::GenerateRequest request = settings_.make_request(record);
  record.sent = Now();
  const absl::Duration time_left = scheduled + settings_.deadline - record.sent;
  auto call =
      std::make_shared<Call>(this, std::move(record), std::move(request));
  {
    MutexLock lock(&mutex_);
    // From here on Stop reaches it; a call that is cancelled before it starts
    // ends as soon as it does.
    calls_.emplace(call.get(), call);
  }
  Stub* const stub =
      settings_
          .stubs[static_cast<size_t>(num_started_++) % settings_.stubs.size()];
  call->Start(stub, time_left);
}

std::vector<Record> LoadGenerator::Wait(absl::Duration until) {
  MutexLock lock(&mutex_);
  const absl::Duration limit = std::min(until, Now() + kTick);
  while (ended_.empty() && !stopped_) {
    const absl::Duration left = limit - Now();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(&mutex_, left);
  }
  if (stopped_ && ended_.empty() && !calls_.empty()) {
    changed_.WaitFor(&mutex_, kTick);
  }
  return std::exchange(ended_, {});
}

absl::Duration LoadGenerator::Run(const Block& block,
                                  Pacer* pacer,
                                  std::vector<Record>* records) {
  const absl::Duration start = Now();
  absl::Duration last_end = start;
  int64_t next = block.begin;
  int64_t in_flight = 0;
  for (;;) {
    absl::Duration wake = absl::InfiniteDuration();
    while (next < block.end && !stopped()) {
      const std::optional<absl::Duration> due = pacer->NextStart();
      if (!due) break;
      if (std::max(*due, Now() - start) >= block.duration) {
        next = block.end;
        break;
      }
      const absl::Duration now = Now() - start;
      if (*due > now) {
        wake = start + *due;
        break;
      }
      StartCall(block, next++, start + pacer->Start(now));
      ++in_flight;
    }
    if (in_flight == 0 && (next == block.end || stopped())) break;
    for (Record& record : Wait(wake)) {
      --in_flight;
      last_end = std::max(last_end, record.done);
      pacer->End(Now() - start, record.failed());
      Count(record);
      records->push_back(std::move(record));
    }
    settings_.on_progress(num_done_, num_failed_, in_flight);
  }
  return last_end - start;
}

void LoadGenerator::Count(const Record& record) {
  if (record.cancelled) return;
  ++num_done_;
  if (!record.failed()) {
    num_failures_in_a_row_ = 0;
    return;
  }
  ++num_failed_;
  const bool has_deadline = settings_.deadline < absl::InfiniteDuration();
  if (IsOverload(record.status, has_deadline)) return;
  if (++num_failures_in_a_row_ >= settings_.give_up_after) Stop();
}

void LoadGenerator::OnEnd(Call* call, Record record) {
  {
    std::shared_ptr<Call> ended;
    MutexLock lock(&mutex_);
    const auto found = calls_.find(call);
    ended = std::move(found->second);
    calls_.erase(found);
    record.cancelled = stopped_ && absl::IsCancelled(record.status);
    // Here the lock is released, then the call destroyed. It must be gone
    // before Run knows of its end: it holds the channel, and a channel whose
    // last holder is one of gRPC's own threads would wait for that thread.
  }
  MutexLock lock(&mutex_);
  ended_.push_back(std::move(record));
  changed_.NotifyOne();
}

void LoadGenerator::Stop() {
  std::vector<std::shared_ptr<Call>> calls;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    for (const auto& [_, call] : calls_) calls.push_back(call);
    changed_.NotifyOne();
  }
  // Not under the lock: cancelling may end a call in this thread.
  for (const std::shared_ptr<Call>& call : calls) call->Cancel();
}

bool LoadGenerator::stopped() const {
  MutexLock lock(&mutex_);
  return stopped_;
}

}  // namespace specwire::cli::bench
