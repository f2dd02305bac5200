// SPDX-License-Identifier: Apache-2.0
#include "coordinator/membership.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"
#include "common/rpc/credentials.h"
#include "common/rpc/message_checksum.h"
#include "common/rpc/status.h"
#include "common/text/utf8.h"

namespace specwire::coordinator {
namespace {

// Nodes that are asked at once, and that wait for it.
// Nodes that do not answer hold a thread each until the deadline.
constexpr int kProbeThreads = 16;
constexpr size_t kMaxQueuedProbes = 4096;
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(2);
// Until a node that fits nobody is asked again.
constexpr absl::Duration kIncompatiblePause = absl::Seconds(10);
// Between two measurements of a draft node's round trip.
constexpr absl::Duration kRoundTripPeriod = absl::Seconds(2);
// A longer one is not waited for, and behind it there is a long pause: nodes
// that do not answer must not keep the workers busy.
constexpr absl::Duration kLongestRoundTrip = absl::Seconds(1);
constexpr absl::Duration kPauseAfterFailure = absl::Seconds(60);
// Between two looks for nodes that are silent.
constexpr absl::Duration kSilencePeriod = absl::Milliseconds(200);
// A tokenizer that is larger is not taken.
constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;
constexpr int kMaxDigestLength = 128;
constexpr int kMaxDrafterNameLength = 64;

// Those that make no sense are left out.
StepCosts StepCostsOf(const v1::GetModelResponse& response) {
  std::vector<StepCosts::Point> points;
  for (const v1::StepCost& cost : response.step_costs()) {
    if (points.size() == StepCosts::kMaxPoints) break;
    points.push_back({cost.num_rows(), absl::Microseconds(cost.duration_us())});
  }
  return StepCosts(points);
}

// Logs, terminals and pages show it.
absl::Status CheckModelName(const std::string& name) {
  if (IsValidUtf8(name) && absl::c_none_of(name, absl::ascii_iscntrl)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "model: its name must be UTF-8 without control characters");
}

absl::Status CheckDrafter(const v1::GetDrafterResponse& response) {
  if (response.drafter().empty() ||
      response.drafter().size() > kMaxDrafterNameLength) {
    return absl::InvalidArgumentError(absl::StrCat(
        "drafter: must be 1 to ", kMaxDrafterNameLength, " characters"));
  }
  if (!absl::c_all_of(response.drafter(), absl::ascii_isgraph)) {
    return absl::InvalidArgumentError(
        "drafter: must be printable ASCII characters without spaces");
  }
  if (response.vocabulary_fingerprint().size() > kMaxDigestLength ||
      response.model_digest().size() > kMaxDigestLength) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocabulary_fingerprint, model_digest: at most ",
                     kMaxDigestLength,
                     " characters"));
  }
  if (response.max_model_len() < 0 || response.max_num_sequences() < 0) {
    return absl::InvalidArgumentError(
        "max_model_len, max_num_sequences: must not be negative");
  }
  return absl::OkStatus();
}

}  // namespace

// A client context for one attempt, with its deadline, that Membership's
// destructor can cancel while the call runs.
class Membership::ProbeContext {
 public:
  ProbeContext(Membership* owner, absl::Duration timeout) : owner_(owner) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    MutexLock lock(&owner_->mutex_);
    if (owner_->stopping_) context_.TryCancel();
    owner_->contexts_.insert(&context_);
  }
  ~ProbeContext() {
    MutexLock lock(&owner_->mutex_);
    owner_->contexts_.erase(&context_);
  }
  ProbeContext(const ProbeContext&) = delete;
  ProbeContext& operator=(const ProbeContext&) = delete;

  grpc::ClientContext* get() { return &context_; }

 private:
  Membership* const owner_;
  grpc::ClientContext context_;
};

Membership::Membership(const CoordinatorOptions& options,
                       Registry* registry,
                       ModelCatalog* catalog,
                       MembershipEvents events)
    : options_(options),
      channel_options_(
          {.credentials = MakeChannelCredentials(options.security.tls),
           .peer_name = kNodeCertificate,
           .api_key = {}}),
      registry_(registry),
      catalog_(catalog),
      events_(std::move(events)),
      timer_(std::make_unique<TimerThread>()),
      workers_(std::make_unique<WorkerPool>(
          "probe", kProbeThreads, kMaxQueuedProbes)) {
  CheckSilence();
}

Membership::~Membership() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
  }
  // From here on nothing is scheduled; what the timer runs may still post to
  // the workers.
  timer_.reset();
  workers_.reset();
}

absl::StatusOr<Registry::Registration> Membership::Join(
    const NodeIdentity& identity) {
  SPECWIRE_ASSIGN_OR_RETURN(const Registry::Registration registration,
                            registry_->Register(identity, absl::Now()));
  NodeInfo node;
  node.node_id = registration.node_id;
  node.identity = identity;
  bool probe = false;
  bool measure = false;
  {
    MutexLock lock(&mutex_);
    std::shared_ptr<const NodeLink>& link = links_[registration.node_id];
    if (link == nullptr || link->address != identity.address) {
      link = std::make_shared<NodeLink>(identity.address, channel_options_);
    }
    // Links of nodes that were replaced have no Join stream to end them.
    std::erase_if(links_, [this](const auto& entry) {
      return !registry_->IsLive(entry.first);
    });
    probe = !registration.known && probing_.insert(node.node_id).second;
    measure = identity.role == NodeRole::kDraft &&
              measuring_.insert(node.node_id).second;
  }
  if (measure) ScheduleRoundTrip(node.node_id, kRoundTripPeriod);
  if (probe) StartProbe(node, 0);
  TellOfDrafters();
  return registration;
}

bool Membership::OnLoad(const Registry::Registration& registration,
                        const NodeLoad& load) {
  const bool current = registry_->OnLoad(registration, load, absl::Now());
  TellOfDrafters();
  TellOfSuspects();
  return current;
}

bool Membership::OnDraining(const Registry::Registration& registration,
                            absl::string_view reason,
                            absl::string_view grace) {
  // A node that has drained for another coordinator has not left this one.
  return registry_->IsLatest(registration) &&
         registry_->Drain(registration.node_id, reason, grace).ok();
}

void Membership::Leave(const Registry::Registration& registration,
                       absl::string_view reason) {
  registry_->OnDetached(registration, reason, absl::Now());
  MutexLock lock(&mutex_);
  if (!registry_->IsLive(registration.node_id)) {
    links_.erase(registration.node_id);
  }
}

std::shared_ptr<const NodeLink> Membership::Link(
    const std::string& node_id) const {
  MutexLock lock(&mutex_);
  const auto it = links_.find(node_id);
  return it == links_.end() ? nullptr : it->second;
}

void Membership::RenewLink(const std::string& node_id, const NodeLink* link) {
  MutexLock lock(&mutex_);
  const auto it = links_.find(node_id);
  if (it == links_.end() || it->second.get() != link) return;
  it->second = std::make_shared<NodeLink>(link->address, channel_options_);
}

void Membership::After(absl::Duration delay,
                       absl::AnyInvocable<void()> callback) {
  MutexLock lock(&mutex_);
  if (stopping_) return;
  timer_->ScheduleAfter(delay, std::move(callback));
}

void Membership::StartProbe(const NodeInfo& node, int attempt) {
  if (workers_->Post([this, node, attempt] { Probe(node, attempt); })) return;
  After(kLongestPause, [this, node, attempt] { StartProbe(node, attempt); });
}

void Membership::Probe(const NodeInfo& node, int attempt) {
  std::shared_ptr<const NodeLink> link;
  {
    // Under the lock that Join takes, so that a node which comes back just now
    // is asked by one of the two.
    MutexLock lock(&mutex_);
    const auto it = links_.find(node.node_id);
    if (it == links_.end() || !registry_->IsLive(node.node_id)) {
      probing_.erase(node.node_id);
      return;
    }
    link = it->second;
  }
  const absl::Status status = node.identity.role == NodeRole::kVerifier
                                  ? ProbeVerifier(node, *link)
                                  : ProbeDrafter(node, *link);
  if (status.ok()) {
    TellOfDrafters();
    if (registry_->IsIncompatible(node.node_id)) {
      // What it said may have been changed on the way.
      After(kIncompatiblePause, [this, node] { StartProbe(node, 0); });
      return;
    }
    MutexLock lock(&mutex_);
    probing_.erase(node.node_id);
    return;
  }
  registry_->OnProbeFailed(node.node_id, status);
  // The connection is there, and does not carry what it is given.
  if (!absl::IsUnavailable(status)) RenewLink(node.node_id, link.get());
  const absl::Duration pause =
      std::min(kFirstPause * (1 << std::min(attempt, 10)), kLongestPause);
  After(pause, [this, node, attempt] { StartProbe(node, attempt + 1); });
}

absl::Status Membership::ProbeVerifier(const NodeInfo& node,
                                       const NodeLink& link) {
  ProbeContext context(this, options_.probe_deadline);
  const std::unique_ptr<grpc::ClientReader<v1::GetModelResponse>> reader =
      link.verifier.GetModel(context.get(), v1::GetModelRequest());
  v1::GetModelResponse response;
  if (!reader->Read(&response)) {
    SPECWIRE_RETURN_IF_ERROR(FromGrpcStatus(reader->Finish()));
    return absl::InternalError("GetModel: no answer");
  }
  int64_t num_received = 0;
  SPECWIRE_RETURN_IF_ERROR(CheckChecksum(num_received++, &response));
  VerifierInfo info;
  SPECWIRE_ASSIGN_OR_RETURN(info.model, FromProto(response.model()));
  SPECWIRE_RETURN_IF_ERROR(CheckModelName(info.model.name));
  info.vocabulary_fingerprint = response.model().vocabulary_fingerprint();
  info.local_drafter = response.model().local_drafter();
  info.max_num_sequences = response.model().max_num_sequences();
  info.max_queued_sequences =
      std::max(response.model().max_queued_sequences(), 0);
  info.step_costs = StepCostsOf(response);
  if (catalog_->Find(info.model.model_digest) == nullptr) {
    std::string tokenizer = response.tokenizer_chunk();
    while (reader->Read(&response)) {
      SPECWIRE_RETURN_IF_ERROR(CheckChecksum(num_received++, &response));
      tokenizer += response.tokenizer_chunk();
      if (tokenizer.size() > kMaxTokenizerBytes) {
        context.get()->TryCancel();
        return absl::ResourceExhaustedError(
            absl::StrCat("GetModel: the tokenizer has more than ",
                         kMaxTokenizerBytes,
                         " bytes"));
      }
    }
    SPECWIRE_RETURN_IF_ERROR(FromGrpcStatus(reader->Finish()));
    SPECWIRE_ASSIGN_OR_RETURN(TokenizerModel model, ParseTokenizer(tokenizer));
    SPECWIRE_RETURN_IF_ERROR(catalog_->Add(info, std::move(model)));
    if (events_.model_gained) events_.model_gained(info.model.name);
  } else {
    // The rest is known.
    context.get()->TryCancel();
    while (reader->Read(&response)) {
    }
    reader->Finish().ok();
  }
  registry_->OnVerifierInfo(node.node_id, std::move(info));
  return absl::OkStatus();
}

absl::Status Membership::ProbeDrafter(const NodeInfo& node,
                                      const NodeLink& link) {
  ProbeContext context(this, options_.probe_deadline);
  v1::GetDrafterResponse response;
  SPECWIRE_RETURN_IF_ERROR(FromGrpcStatus(link.drafter.GetDrafter(
      context.get(), v1::GetDrafterRequest(), &response)));
  SPECWIRE_RETURN_IF_ERROR(CheckChecksum(0, &response));
  SPECWIRE_RETURN_IF_ERROR(CheckDrafter(response));
  registry_->OnDrafterInfo(node.node_id,
                           {response.drafter(),
                            response.vocabulary_fingerprint(),
                            response.model_digest(),
                            response.max_model_len(),
                            response.max_num_sequences(),
                            response.synthetic()});
  return absl::OkStatus();
}

void Membership::ScheduleRoundTrip(const std::string& node_id,
                                   absl::Duration pause) {
  After(pause, [this, node_id] {
    // Without a worker now there is one later.
    if (!workers_->Post([this, node_id] { MeasureRoundTrip(node_id); })) {
      ScheduleRoundTrip(node_id, kRoundTripPeriod);
    }
  });
}

void Membership::MeasureRoundTrip(const std::string& node_id) {
  std::shared_ptr<const NodeLink> link;
  {
    MutexLock lock(&mutex_);
    const auto it = links_.find(node_id);
    if (it == links_.end()) {
      measuring_.erase(node_id);
      return;
    }
    link = it->second;
  }
  absl::Duration pause = kRoundTripPeriod;
  // A node that hangs would hold the worker, and a connection that has yet to
  // be made would be part of what is measured.
  if (registry_->IsServing(node_id) &&
      link->channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) {
    ProbeContext context(this, kLongestRoundTrip);
    v1::GetDrafterResponse response;
    const absl::Time begin = absl::Now();
    const grpc::Status status = link->drafter.GetDrafter(
        context.get(), v1::GetDrafterRequest(), &response);
    if (status.ok()) {
      registry_->OnRoundTrip(node_id, absl::Now() - begin);
    } else {
      pause = kPauseAfterFailure;
    }
  }
  ScheduleRoundTrip(node_id, pause);
}

void Membership::CheckSilence() {
  registry_->CheckSilence(absl::Now());
  TellOfSuspects();
  After(std::min(options_.report_interval, kSilencePeriod),
        [this] { CheckSilence(); });
}

void Membership::TellOfDrafters() {
  const int64_t gained = registry_->drafters_gained();
  {
    MutexLock lock(&mutex_);
    if (stopping_ || gained <= drafters_told_) return;
    drafters_told_ = gained;
  }
  events_.drafters_gained();
}

void Membership::TellOfSuspects() {
  for (const Registry::Suspect& suspect :
       registry_->TakeSuspects(absl::Now())) {
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
      for (const auto& [call, node_id] : calls_) {
        if (node_id == suspect.node_id) call->TryCancel();
      }
    }
    events_.node_suspect(
        suspect.node_id,
        absl::UnavailableError(absl::StrCat("suspect: ", suspect.reason)));
  }
}

Membership::CallGuard::CallGuard(const Membership* owner,
                                 const std::string& node_id,
                                 grpc::ClientContext* call)
    : owner_(owner), call_(call) {
  MutexLock lock(&owner_->mutex_);
  owner_->calls_[call] = node_id;
}

Membership::CallGuard::~CallGuard() {
  MutexLock lock(&owner_->mutex_);
  owner_->calls_.erase(call_);
}

}  // namespace specwire::coordinator
