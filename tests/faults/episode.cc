// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/episode.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/drafting/synthetic.h"
#include "tests/faults/fault_cluster.h"
#include "tests/faults/strike.h"
#include "tests/testing/generate_call.h"

namespace specwire::faults {
namespace {

// Every call ends within this, whatever happens.
constexpr absl::Duration kCallBound = absl::Seconds(60);
// What has been healed is whole again, and a process that was told to end has.
constexpr absl::Duration kHealTime = absl::Seconds(40);
constexpr int kClients = 3;
// Most tries to strike before the watched client is through.
constexpr int kTries = 3;

constexpr char kDrained[] = "verifier-0";
// Lost beforehand in the phase kRecovery.
constexpr char kFirstLost[] = "verifier-1";

// One try.
class Episode {
 public:
  Episode(const Cell& cell, uint64_t seed, const Programs& programs)
      : cell_(cell),
        random_(seed),
        programs_(programs),
        // Nobody but TLS notices a flipped bit.
        cluster_(programs.bin, seed, {}, cell.fault == Fault::kFlips) {}

  Verdict Run();
  // The fault struck when the watched client was through.
  bool too_late() const { return too_late_; }

 private:
  void Problem(const std::string& what) { verdict_.problems.push_back(what); }
  void Check(const absl::Status& status, const std::string& what) {
    if (!status.ok()) Problem(absl::StrCat(what, ": ", status.ToString()));
  }
  void Slow();
  void StartClients();
  // Waits for the phase and brings it about.
  void Reach();
  void ReachTokens(int count);
  std::string Victim() const;
  void KillAndReap(const std::string& name);
  void Restart(const std::string& name);
  void Heal();
  void CheckClients();
  void CheckService();

  const Cell cell_;
  std::mt19937_64 random_;
  const Programs programs_;
  FaultCluster cluster_;
  LinkState slowed_;
  int max_tokens_ = 60;
  std::vector<v1::GenerateRequest> requests_;
  std::vector<std::unique_ptr<ClientProcess>> clients_;
  // Told to end by SIGTERM in the phase kDrain.
  std::string drained_;
  bool too_late_ = false;
  Verdict verdict_;
};

Verdict Episode::Run() {
  const absl::Time begin = absl::Now();
  if (absl::Status status = cluster_.Start(); !status.ok()) {
    Check(status, "the cluster does not start");
    return verdict_;
  }
  Slow();
  if (cell_.phase != Phase::kConnect) StartClients();
  Reach();
  const bool watched = cell_.phase != Phase::kConnect;
  // To hit a node that joins nobody has to stream.
  too_late_ =
      watched && cell_.phase != Phase::kJoin && clients_[0]->log().finished;
  Strike strike(cell_.fault, Victim(), slowed_, &cluster_);
  if (cell_.target == Target::kClient && watched) {
    strike.AimAt(clients_[0]->pid());
  }
  if (cell_.target == Target::kClient && !watched) {
    StartClients();
    strike.AimAt(clients_[0]->pid());
  }
  Check(strike.Begin(), "the fault cannot strike");
  if (clients_.empty()) StartClients();
  absl::SleepFor(strike.hold());
  strike.End();
  Heal();
  CheckClients();
  CheckService();
  verdict_.took = absl::Now() - begin;
  return verdict_;
}

void Episode::Slow() {
  const LinkConditions slow = {.delay = absl::Milliseconds(40)};
  if (cell_.phase == Phase::kWaitForDraft) {
    for (const char* link : {"draft-0", "draft-1"})
      slowed_[link] = {slow, slow};
    max_tokens_ = 40;
  } else if (cell_.phase == Phase::kJoin) {
    // A program takes a while to start.
    max_tokens_ = 200;
  } else if (cell_.phase == Phase::kDelivery) {
    for (const char* link :
         {"client-0", "client-1", "verifier-0", "verifier-1", "verifier-2"}) {
      slowed_[link] = {{}, slow};
    }
  } else if (cell_.phase == Phase::kLastToken) {
    // The driver sees a token no earlier than the client does.
    const LinkConditions slower = {.delay = absl::Milliseconds(100)};
    for (const char* link : {"client-0", "client-1"})
      slowed_[link] = {{}, slower};
  }
  for (const auto& [link, conditions] : slowed_) {
    Check(cluster_.SetLink(link, conditions.first, conditions.second), link);
  }
}

void Episode::StartClients() {
  for (int i = 0; i < kClients; ++i) {
    // The first is the one that is watched.
    const int prompt_length = cell_.phase == Phase::kPrefill ? 1500 : 20;
    v1::GenerateRequest request =
        MakeRequest(random_(), prompt_length, max_tokens_);
    request.mutable_speculation()->set_patience_us(
        cell_.phase == Phase::kWaitForDraft ? -1 : 20000);
    requests_.push_back(request);
    clients_.push_back(
        std::make_unique<ClientProcess>(programs_.self,
                                        cluster_.client_addresses(),
                                        cluster_.client_tls(),
                                        request));
  }
}

void Episode::ReachTokens(int count) {
  if (!clients_[0]->WaitTokens(static_cast<size_t>(count),
                               absl::Now() + kCallBound)) {
    Problem("the phase was not reached");
  }
}

void Episode::Reach() {
  const int some = 5 + static_cast<int>(random_() % 15);
  switch (cell_.phase) {
    case Phase::kConnect:
      return;
    case Phase::kJoin: {
      ReachTokens(some);
      const bool coordinator = cell_.target == Target::kCoordinator;
      const bool drafter = cell_.target == Target::kDrafter ||
                           cell_.target == Target::kDrafterLink;
      Restart(coordinator ? "coordinator-0" : drafter ? "draft-0" : kDrained);
      return;
    }
    case Phase::kPrefill:
      if (!clients_[0]->WaitStarted(absl::Now() + kCallBound)) {
        Problem("no client was served");
      }
      absl::SleepFor(absl::Milliseconds(20 + random_() % 60));
      return;
    case Phase::kWaitForDraft:
    case Phase::kVerify:
    case Phase::kDelivery:
      ReachTokens(some);
      absl::SleepFor(absl::Milliseconds(random_() % 10));
      return;
    case Phase::kLastToken:
      ReachTokens(max_tokens_ - 6);
      return;
    case Phase::kDrain: {
      ReachTokens(some);
      const bool itself = cell_.target == Target::kCoordinator ||
                          cell_.target == Target::kDrafter;
      drained_ = itself ? Victim() : kDrained;
      cluster_.Signal(drained_, SIGTERM);
      absl::SleepFor(absl::Milliseconds(random_() % 10));
      return;
    }
    case Phase::kRecovery:
      ReachTokens(some);
      KillAndReap(kFirstLost);
      absl::SleepFor(absl::Milliseconds(random_() % 30));
      return;
  }
}

std::string Episode::Victim() const {
  switch (cell_.target) {
    case Target::kClient:
      return "";
    case Target::kCoordinator:
      return "coordinator-0";
    case Target::kDrafter:
    case Target::kDrafterLink:
      return "draft-0";
    case Target::kVerifier:
    case Target::kVerifierLink:
      return "verifier-0";
    case Target::kClientLink:
      return "client-0";
    case Target::kJoinLink:
      return "join-verifier-0-0";
  }
  return "";
}

void Episode::KillAndReap(const std::string& name) {
  cluster_.Signal(name, SIGKILL);
  cluster_.WaitEnded(name, kHealTime);
}

void Episode::Restart(const std::string& name) {
  KillAndReap(name);
  Check(cluster_.StartProgram(name), absl::StrCat(name, " does not start"));
}

void Episode::Heal() {
  cluster_.HealLinks();
  const bool process = !IsLink(cell_.target);
  for (const std::string& name : cluster_.names()) {
    const bool struck = process && name == Victim();
    const bool told_to_end =
        name == drained_ || (struck && cell_.fault == Fault::kTerminate);
    if (told_to_end) {
      const int code = cluster_.WaitEnded(name, kHealTime);
      // A second signal, or another fault, may end it at once.
      const bool may_die =
          struck && (cell_.fault != Fault::kTerminate || name == drained_);
      if (code != 0 && !may_die) {
        Problem(absl::StrCat(name, " ended with ", code, " at SIGTERM"));
      }
      if (code == -1000) KillAndReap(name);
    }
    if (!cluster_.HasEnded(name)) continue;
    const int code = cluster_.WaitEnded(name, kHealTime);
    const bool expected = struck || told_to_end || name == kFirstLost;
    if (!expected) Problem(absl::StrCat(name, " ended with ", code));
    if (struck && !told_to_end && cell_.fault == Fault::kMemory && code == 0) {
      Problem(absl::StrCat(name, " ran out of memory and ended with 0"));
    }
    Check(cluster_.StartProgram(name), absl::StrCat(name, " does not start"));
  }
}

void Episode::CheckClients() {
  const absl::Time bound = absl::Now() + kCallBound;
  const bool may_die =
      cell_.fault != Fault::kStopShort && cell_.fault != Fault::kStopLong;
  for (size_t i = 0; i < clients_.size(); ++i) {
    const std::string name = absl::StrCat("client ", i);
    if (!clients_[i]->WaitEnded(bound)) {
      ++verdict_.hung;
      Problem(absl::StrCat(name, " hangs"));
    }
    const bool struck = cell_.target == Target::kClient && i == 0 && may_die;
    // Text that nothing protects is not judged, only that it ends.
    if (MayChangeTokens(cell_)) continue;
    CheckLog(requests_[i], clients_[i]->log(), !struck, name, &verdict_);
  }
}

void Episode::CheckService() {
  absl::Status idle;
  if (!Eventually([&] { return (idle = cluster_.CheckIdle()).ok(); },
                  kHealTime)) {
    Check(idle, "the cluster is not as before");
  }
  verdict_.sequences = cluster_.sequences();
  verdict_.blocks = cluster_.blocks();
  for (int i = 0; i < FaultCluster::kCoordinators; ++i) {
    const v1::GenerateRequest request = MakeRequest(random_(), 20, 12);
    const GenerateResult result = CallGenerate(cluster_.generation(i), request);
    if (!result.status.ok() || !result.fault.empty() ||
        result.token_ids != PlainTokens(request)) {
      Problem(absl::StrCat("coordinator-",
                           i,
                           " does not serve: ",
                           result.status.ToString(),
                           " ",
                           result.fault));
    }
  }
  // New clients too, on connections of their own.
  const v1::GenerateRequest request = MakeRequest(random_(), 20, 12);
  ClientProcess client(programs_.self,
                       cluster_.client_addresses(),
                       cluster_.client_tls(),
                       request);
  if (!client.WaitEnded(absl::Now() + kCallBound)) {
    Problem("a new client hangs");
  }
  CheckLog(request, client.log(), true, "a new client", &verdict_);
}

}  // namespace

Verdict RunCell(const Cell& cell, uint64_t seed, const Programs& programs) {
  for (int i = 1;; ++i) {
    const int pauses = programs.pauses->num_pauses();
    Episode episode(cell, seed, programs);
    Verdict verdict = episode.Run();
    const bool disturbed =
        !verdict.ok() && programs.pauses->num_pauses() > pauses;
    if (!disturbed && !episode.too_late()) return verdict;
    if (i == kTries) {
      verdict.problems.push_back(disturbed
                                     ? "the machine stood still each time"
                                     : "the fault came too late each time");
      return verdict;
    }
  }
}

v1::GenerateRequest MakeRequest(uint64_t number,
                                int prompt_length,
                                int max_tokens) {
  v1::GenerateRequest request;
  std::mt19937_64 random(number);
  for (int i = 0; i < prompt_length; ++i) {
    request.mutable_token_ids()->add_ids(1 +
                                         static_cast<int32_t>(random() % 256));
  }
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_seed(static_cast<int64_t>(number >> 1));
  request.mutable_stop()->set_max_tokens(max_tokens);
  request.mutable_speculation()->set_max_draft_tokens(4);
  return request;
}

std::vector<int32_t> PlainTokens(const v1::GenerateRequest& request) {
  const SyntheticLanguage language(kDefaultSyntheticVocab);
  uint64_t state = language.Begin();
  for (const int32_t token : request.token_ids().ids()) {
    state = language.Extend(state, token);
  }
  std::vector<int32_t> tokens;
  for (int i = 0; i < request.stop().max_tokens(); ++i) {
    tokens.push_back(language.Next(state));
    state = language.Extend(state, tokens.back());
  }
  return tokens;
}

void CheckLog(const v1::GenerateRequest& request,
              const ClientLog& log,
              bool whole,
              const std::string& name,
              Verdict* verdict) {
  const std::vector<int32_t> plain = PlainTokens(request);
  int wrong = 0;
  for (size_t i = 0; i < log.tokens.size(); ++i) {
    if (i >= plain.size() || log.tokens[i] != plain[i]) ++wrong;
  }
  int lost = log.lost;
  // A call that failed has lost nothing that it was given.
  if (log.finished && log.tokens.size() < plain.size()) {
    lost += static_cast<int>(plain.size() - log.tokens.size());
  }
  verdict->wrong += wrong;
  verdict->lost += lost;
  verdict->doubled += log.doubled;
  if (wrong + lost + log.doubled > 0) {
    verdict->problems.push_back(absl::StrCat(name,
                                             ": ",
                                             wrong,
                                             " tokens wrong, ",
                                             lost,
                                             " lost, ",
                                             log.doubled,
                                             " doubled"));
  }
  if (whole && (log.end != "OK" || !log.finished)) {
    verdict->problems.push_back(absl::StrCat(
        name, " failed after ", log.tokens.size(), " tokens: ", log.end));
  }
}

}  // namespace specwire::faults
