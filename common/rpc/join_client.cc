// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/join_client.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/logging.h"
#include "common/base/random_id.h"
#include "common/base/strand.h"
#include "common/rpc/client_stream.h"
#include "specwire/v1/cluster.grpc.pb.h"

namespace specwire {
namespace {

// What a coordinator may ask for is bounded, whatever it says.
constexpr int32_t kMinReportIntervalMs = 10;
constexpr int32_t kMaxReportIntervalMs = 60'000;
constexpr int64_t kMaxGraceMs = 24 * 3'600'000;

}  // namespace

// The stream to one coordinator. All state belongs to the strand; events of an
// earlier stream carry its attempt's number and are ignored.
class JoinClient::Link {
 public:
  Link(const JoinClient* owner, const std::string& address)
      : owner_(owner),
        address_(address),
        backoff_(owner->options_.min_backoff),
        strand_(std::make_shared<Strand>()) {}

  void Start() {
    strand_->Post([this] { Connect(); });
  }

  // After this no callback runs.
  void Stop() {
    strand_->Close();
    owner_->timer_->Cancel(timer_id_);
    if (sender_ != nullptr) sender_->Cancel();
    joined_ = false;
  }

  bool joined() const { return joined_; }

  // The node has begun to drain.
  void TellDraining() {
    strand_->Post([this] {
      if (joined_) SendDraining();
    });
  }

 private:
  // Outlives the link if the stream does: it holds the strand, which drops what
  // comes after Stop.
  class Handler final : public StreamHandler<v1::JoinResponse> {
   public:
    Handler(Link* link, std::shared_ptr<Strand> strand, int64_t attempt)
        : link_(link), strand_(std::move(strand)), attempt_(attempt) {}

    void OnMessage(v1::JoinResponse message) override {
      strand_->Post(
          [link = link_, attempt = attempt_, message = std::move(message)] {
            if (attempt == link->attempt_) link->OnCommand(message);
          });
    }

    void OnClosed(absl::Status status) override {
      strand_->Post(
          [link = link_, attempt = attempt_, status = std::move(status)] {
            if (attempt == link->attempt_) link->OnLost(status);
          });
    }

   private:
    // Touched only by tasks of the strand.
    Link* const link_;
    // Shared with the link and other attempts' handlers.
    const std::shared_ptr<Strand> strand_;
    const int64_t attempt_;
  };

  // Runs `task` on the strand after `delay` unless the attempt has ended by
  // then.
  void Schedule(absl::Duration delay, void (Link::*task)()) {
    timer_id_ = owner_->timer_->ScheduleAfter(
        delay, [this, strand = strand_, attempt = attempt_, task] {
          strand->Post([this, attempt, task] {
            if (attempt == attempt_) (this->*task)();
          });
        });
  }

  void Connect() {
    ++attempt_;
    // A connection may live on and fail every call: a flipped bit in a header
    // that both ends keep for later ones stays there.
    stub_ = v1::ClusterService::NewStub(
        MakeChannel(address_, owner_->options_.channel));
    sender_ = StartClientStream<v1::JoinRequest, v1::JoinResponse>(
        ClientStreamOptions(),
        std::make_shared<Handler>(this, strand_, attempt_),
        [this](grpc::ClientContext* context, auto* reactor) {
          stub_->async()->Join(context, reactor);
        });
    v1::JoinRequest request;
    *request.mutable_registration() = owner_->options_.registration;
    sender_->Send(std::move(request));
    Schedule(owner_->options_.accept_timeout, &Link::OnAcceptTimeout);
  }

  void OnCommand(const v1::JoinResponse& response) {
    if (response.has_accepted() && !joined_) {
      joined_ = true;
      backoff_ = owner_->options_.min_backoff;
      last_problem_.clear();
      report_interval_ = absl::Milliseconds(
          std::clamp(response.accepted().report_interval_ms(),
                     kMinReportIntervalMs,
                     kMaxReportIntervalMs));
      max_silence_ =
          absl::Milliseconds(std::max(response.accepted().max_silence_ms(), 0));
      num_unanswered_ = 0;
      SPECWIRE_LOG(Info,
                   "joined coordinator ",
                   address_,
                   " as ",
                   response.accepted().node_id());
      owner_->timer_->Cancel(timer_id_);
      SendDraining();
      Report();
    } else if (response.has_alive()) {
      num_unanswered_ = 0;
    } else if (response.has_drain()) {
      SPECWIRE_LOG(Info, "coordinator ", address_, " asks to drain");
      if (!owner_->drain_) return;
      std::optional<absl::Duration> grace;
      if (response.drain().has_grace_ms()) {
        grace = absl::Milliseconds(
            std::clamp(response.drain().grace_ms(), int64_t{0}, kMaxGraceMs));
      }
      owner_->drain_(grace);
    }
  }

  // If the node drains.
  void SendDraining() {
    std::optional<v1::JoinRequest> request = owner_->DrainingMessage();
    if (request.has_value()) sender_->Send(*std::move(request));
  }

  void Report() {
    // By reports rather than by the clock: whoever stood still has sent none.
    if (max_silence_ > absl::ZeroDuration() &&
        report_interval_ * num_unanswered_ > max_silence_) {
      sender_->Cancel();
      OnLost(absl::AbortedError(absl::StrCat(
          "no report was answered for ", absl::FormatDuration(max_silence_))));
      return;
    }
    ++num_unanswered_;
    v1::JoinRequest request;
    *request.mutable_load() = owner_->load_();
    sender_->Send(std::move(request));
    Schedule(report_interval_, &Link::Report);
  }

  void OnAcceptTimeout() {
    sender_->Cancel();
    OnLost(absl::DeadlineExceededError("no answer to the registration"));
  }

  void OnLost(const absl::Status& status) {
    // From here on the attempt's other events are stale.
    ++attempt_;
    owner_->timer_->Cancel(timer_id_);
    if (joined_) {
      SPECWIRE_LOG(Warning,
                   "lost coordinator ",
                   address_,
                   ": ",
                   status.ok() ? "it ended the stream" : status.message());
    } else if (last_problem_ != absl::StatusCodeToString(status.code())) {
      SPECWIRE_LOG(Warning,
                   "cannot join coordinator ",
                   address_,
                   ": ",
                   status.message(),
                   "; trying again until it works");
    }
    last_problem_ = absl::StatusCodeToString(status.code());
    if (joined_.exchange(false) && owner_->names_ != nullptr) {
      // Where it was another may be by now, under another address.
      owner_->names_->Hurry();
    }
    sender_.reset();
    const absl::Duration delay = backoff_ * (1.0 - 0.5 * RandomUnit());
    backoff_ = std::min(backoff_ * 2, owner_->options_.max_backoff);
    Schedule(delay, &Link::Connect);
  }

  const JoinClient* const owner_;
  const std::string address_;
  // Of the latest attempt.
  std::unique_ptr<v1::ClusterService::Stub> stub_;
  int64_t attempt_ = 0;
  std::shared_ptr<ClientSender<v1::JoinRequest>> sender_;
  TimerThread::Id timer_id_ = TimerThread::kNone;
  absl::Duration report_interval_;
  // Not positive: reports are not answered.
  absl::Duration max_silence_;
  // Reports since one was answered.
  int64_t num_unanswered_ = 0;
  absl::Duration backoff_;
  // Code of the last failure, so that each kind is logged once.
  std::string last_problem_;
  // Written on the strand, read by anybody.
  std::atomic<bool> joined_ = false;
  // Shared with handlers and timer callbacks, which may outlive the link.
  const std::shared_ptr<Strand> strand_;
};

JoinClient::JoinClient(JoinClientOptions options,
                       LoadCallback load,
                       DrainCallback drain)
    : options_(std::move(options)),
      load_(std::move(load)),
      drain_(std::move(drain)),
      timer_(std::make_unique<TimerThread>()) {
  NameWatchOptions names = options_.names;
  for (const std::string& target : options_.coordinators) {
    if (const std::optional<HostPort> name = NameOfTarget(target)) {
      names.names.push_back(*name);
    } else {
      fixed_.insert(target);
    }
  }
  if (!names.names.empty()) {
    names_ = std::make_unique<NameWatch>(
        std::move(names),
        [this](const std::set<std::string>& found) { SetAddresses(found); });
  }
  SetAddresses({});
  if (names_ != nullptr) names_->Start();
}

JoinClient::~JoinClient() { Stop(); }

void JoinClient::SetAddresses(const std::set<std::string>& addresses) {
  std::vector<std::unique_ptr<Link>> left;
  {
    MutexLock lock(&mutex_);
    if (stopped_) return;
    for (auto it = links_.begin(); it != links_.end();) {
      if (addresses.contains(it->first) || fixed_.contains(it->first)) {
        ++it;
        continue;
      }
      SPECWIRE_LOG(Info,
                   "leaving coordinator ",
                   it->first,
                   ": its name no longer has this address");
      left.push_back(std::move(it->second));
      it = links_.erase(it);
    }
    std::set<std::string> wanted = addresses;
    wanted.insert(fixed_.begin(), fixed_.end());
    for (const std::string& address : wanted) {
      std::unique_ptr<Link>& link = links_[address];
      if (link != nullptr) continue;
      link = std::make_unique<Link>(this, address);
      link->Start();
    }
  }
  for (const auto& link : left) link->Stop();
}

int JoinClient::num_joined() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(
      std::count_if(links_.begin(), links_.end(), [](const auto& entry) {
        return entry.second->joined();
      }));
}

void JoinClient::TellDraining(absl::string_view reason, absl::Duration grace) {
  {
    MutexLock lock(&draining_mutex_);
    draining_ = {std::string(reason), absl::Now() + grace};
  }
  MutexLock lock(&mutex_);
  for (const auto& [address, link] : links_) link->TellDraining();
}

std::optional<v1::JoinRequest> JoinClient::DrainingMessage() const {
  MutexLock lock(&draining_mutex_);
  if (!draining_.has_value()) return std::nullopt;
  v1::JoinRequest request;
  v1::NodeDraining* const message = request.mutable_draining();
  message->set_reason(draining_->reason);
  message->set_grace_ms(
      std::max(absl::ToInt64Milliseconds(draining_->deadline - absl::Now()),
               int64_t{0}));
  return request;
}

void JoinClient::Stop() {
  std::map<std::string, std::unique_ptr<Link>> links;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    links.swap(links_);
  }
  // What names_ still says is ignored.
  for (const auto& [address, link] : links) link->Stop();
  // It may be at stopping links that it has just dropped, which call it: it
  // must be there until that is done.
  if (names_ != nullptr) names_->Stop();
}

}  // namespace specwire
