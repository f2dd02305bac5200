// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/drafting/draft_path.h"
#include "common/drafting/messages.h"
#include "coordinator/request_machine.h"
#include "coordinator/request_trace.h"
#include "tests/integration/protocol_simulation.h"
#include "tests/integration/schedule.h"
#include "tests/integration/toy_model.h"
#include "verifier_node/verify_sequence.h"

namespace specwire::simulation {

using coordinator::Action;
using coordinator::RequestMachine;
using verifier::VerifySequence;

enum Link { kToCoordinatorD, kToDrafter, kToVerifier, kToCoordinatorV };

// One Decode stream, as the simulation keeps its books.
struct StreamBooks {
  int64_t forwarded = 0;
  // Reported by the commits that reached the coordinator.
  int64_t verified = 0;
  DecodeCounters counters;
  // At the verifier.
  int64_t received = 0;
  int64_t rows = 0;
  int decode_until = 0;
  int opened_length = 0;
  int32_t opened_source = 0;
  // The wrong fence of Broken::kFence.
  int broken_fence = 0;
};

// One request under one schedule: the machines, the links between them, and
// books of its own. See protocol_simulation.h.
class Simulation {
 public:
  // `life` counts the coordinators that had the request before; the client has
  // `resumed` of them.
  Simulation(const Options& options, int life, std::vector<int32_t> resumed);

  Outcome Run();
  // The client's tokens, all of them. Another coordinator is to go on.
  const std::vector<int32_t>& client() const { return client_; }
  bool goes_on() const { return crashed_ || no_verifier_; }

 private:
  struct Event {
    int64_t at;
    int64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };
  static coordinator::RequestParams MakeParams(
      const Settings& settings, const std::vector<int32_t>& resumed);
  coordinator::TokenJudge MakeJudge();

  void Fail(const std::string& why) {
    if (outcome_.failure.empty()) {
      outcome_.failure = why;
    }
  }
  absl::Time Now() const {
    return absl::UnixEpoch() + absl::Milliseconds(now_);
  }
  int Delay() { return rng_.Pick({1, 1, 2, rng_.Below(40)}); }
  void At(int64_t time, std::function<void()> what) {
    queue_.push({std::max(time, now_), next_order_++, std::move(what)});
  }
  // FIFO per link and stream; a dead stream delivers nothing.
  void Send(Link link, int stream, std::function<void()> what);

  void Carry(const std::vector<Action>& actions);
  void Do(const coordinator::OpenVerifier& action);
  void Do(const coordinator::SendProposal& action);
  void Do(const coordinator::SendDecodeTune& action);
  void Do(const coordinator::OpenDrafter& action);
  void Do(const coordinator::SendCommit& action);
  void Do(const coordinator::SendRewind& action);
  void Do(const coordinator::SendDraftTune& action);
  void Do(const coordinator::CloseVerifier&) { CloseVerifierStream(); }
  void Do(const coordinator::CloseDrafter& action);
  void Do(const coordinator::ArmDrafterTimer& action);
  void Do(const coordinator::EmitTokens& action);
  void Do(const coordinator::FinishRequest& action);
  void CloseVerifierStream() {
    verifier_.reset();
    verifier_side_ = {};
    verifier_open_ = false;
    ++verifier_stream_;
  }

  void PumpDrafter();
  void FromDrafter(Proposal proposal);
  void ToCoordinator(const Proposal& proposal);
  void ToVerifier(Proposal proposal);
  void PumpVerifier();
  void Step(int max_rows);
  // What the verifier looks up for its next step.
  void DraftLocally();
  void FromVerifier(Commit commit);
  void CheckVerifier();
  void MaybeLose();
  // The side of verifiers, or of drafters, stops for a while.
  struct Side {
    bool hung = false;
    // Streams and what came on them meanwhile.
    std::deque<std::pair<int, std::function<void()>>> waiting;
  };
  void MaybeHang();
  void Hang(bool drafter);
  void Wake(bool drafter);
  bool IsAlive(bool drafter, int stream) const {
    return drafter ? drafter_open_ && stream == source_
                   : verifier_open_ && stream == verifier_stream_;
  }
  // True if there is nobody to open, or who refuses.
  bool OpenFails();
  void CheckEnd();
  void CheckFigures();
  void CountTraced(const coordinator::TracedPass& pass);
  // The trace adds up to the figures.
  void CheckTrace();
  // What a drafter may have been told at most.
  int MaxRunLength() const {
    return settings_.free_settings ? kMaxRunLength : settings_.run_length;
  }
  int MaxWindow() const {
    return settings_.free_settings ? kMaxWindow : settings_.window;
  }
  StreamBooks& books() { return books_[verifier_stream_]; }

  const Broken broken_;
  Rng rng_;
  const Settings settings_;
  const SteadyClock clock_;
  coordinator::RequestTrace trace_{&clock_, absl::ZeroDuration()};
  RequestMachine machine_;
  Outcome outcome_;
  // Draft tokens of all passes, by what became of them, and those left out.
  std::map<DraftOutcome, int64_t> traced_;
  int64_t left_out_ = 0;

  int64_t now_ = 0;
  int64_t next_order_ = 0;
  std::priority_queue<Event> queue_;
  std::map<std::pair<int, int>, int64_t> last_delivery_;

  std::optional<VerifySequence> verifier_;
  bool verifier_open_ = false;
  int verifier_stream_ = 0;
  bool stepping_ = false;
  std::map<int, StreamBooks> books_;

  std::optional<DraftPath> drafter_;
  bool drafter_open_ = false;
  int32_t source_ = 0;
  uint64_t drafter_salt_ = 0;
  bool drafter_mute_ = false;
  bool dismissed_ = false;
  int drafter_end_ = 0;

  Side verifier_side_;
  Side drafter_side_;
  // A stop of an earlier stream is over.
  int num_hangs_ = 0;
  bool crashed_ = false;
  bool no_verifier_ = false;

  const int num_resumed_;
  std::vector<int32_t> client_;
  // What the judge was asked about.
  std::vector<int32_t> judged_;
  std::optional<coordinator::FinishRequest> finish_;
  int64_t drafted_ = 0;
  // Of what the coordinator took up: verified local draft tokens.
  int64_t local_ = 0;
  int64_t dropped_ = 0;
  int64_t passes_ = 0;
  int64_t accepted_ = 0;
};

}  // namespace specwire::simulation
