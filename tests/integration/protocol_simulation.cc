// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/protocol_simulation.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/drafting/draft_path.h"
#include "coordinator/request_machine.h"
#include "tests/integration/toy_model.h"
#include "verifier_node/verify_sequence.h"

namespace specwire::simulation {
namespace {

using coordinator::Action;
using coordinator::RequestMachine;
using verifier::VerifySequence;

enum Link { kToCoordinatorD, kToDrafter, kToVerifier, kToCoordinatorV };

// Everything a schedule draws before it starts.
struct Settings {
  uint64_t toy_seed = 0;
  int prompt_length = 3;
  int max_tokens = 0;
  int run_length = 0;
  int window = 0;
  absl::Duration patience;
  double quality = 0;
  double silent = 0;
  double partial = 0;
  bool moody = false;
  bool stops = false;
  bool speculate = true;
  int credit = 0;
  int max_moves = 0;
  int row_budget = 0;
  int client_delay = 0;
  double crash = 0;
  double lose_draft = 0;
  double no_draft_node = 0;
  // Drafter deadlines run; without them the protocol has to live by itself.
  bool timers = false;
  int deadline = 0;
  // Needs timers: messages of the drafter are dropped or mangled.
  double mute = 0;
  double nonsense = 0;
  // Commits are repeated, or garbled in ways that show.
  double mad_verifier = 0;
};

Settings DrawSettings(Rng* rng, Broken broken) {
  Settings s;
  s.toy_seed = rng->Next();
  s.max_tokens = 5 + rng->Below(35);
  s.run_length = rng->Pick({1, 2, 3, 4, 8});
  s.window =
      s.run_length + rng->Pick({0, 0, 1, s.run_length, 2 * s.run_length + 1});
  const int patience = rng->Pick({0, 1, 5, 30, -1});
  s.patience =
      patience < 0 ? absl::InfiniteDuration() : absl::Milliseconds(patience);
  s.quality = rng->Pick({0.0, .3, .7, .95, 1.0});
  s.silent = rng->Pick({0.0, 0.0, .3});
  s.partial = rng->Pick({0.0, 0.0, .3});
  s.row_budget = rng->Pick({1, 2, 4, 16, 64});
  s.crash = rng->Pick({0.0, 0.0, .02});
  s.lose_draft = rng->Pick({0.0, 0.0, .02});
  s.max_moves = 1000000;
  s.credit = 1000;
  if (broken != Broken::kNone) {
    return s;
  }
  s.moody = rng->Chance(.3);
  s.stops = rng->Chance(.3);
  s.speculate = !rng->Chance(.02);
  s.credit = rng->Pick({1000, 1000, 1, 3, 16});
  s.client_delay = rng->Pick({0, 3, 40});
  s.max_moves = rng->Pick({1000000, 1000000, 1000000, 2, 0});
  s.timers = rng->Chance(.5);
  if (s.timers) {
    s.deadline = rng->Pick({30, 100, 400});
    s.no_draft_node = rng->Pick({0.0, 0.0, .3});
    s.mute = rng->Pick({0.0, 0.0, .1, 1.0});
    s.nonsense = rng->Pick({0.0, 0.0, .02, .2});
    s.mad_verifier = rng->Pick({0.0, 0.0, .05});
  }
  return s;
}

std::string Describe(const Settings& s) {
  return absl::StrCat("max_tokens=",
                      s.max_tokens,
                      " run_length=",
                      s.run_length,
                      " window=",
                      s.window,
                      " patience=",
                      absl::FormatDuration(s.patience),
                      " quality=",
                      s.quality,
                      " silent=",
                      s.silent,
                      " partial=",
                      s.partial,
                      " moody=",
                      s.moody,
                      " stops=",
                      s.stops,
                      " credit=",
                      s.credit,
                      " max_moves=",
                      s.max_moves,
                      " row_budget=",
                      s.row_budget,
                      " crash=",
                      s.crash,
                      " lose_draft=",
                      s.lose_draft,
                      " no_draft_node=",
                      s.no_draft_node,
                      " timers=",
                      s.timers,
                      " deadline=",
                      s.deadline,
                      " mute=",
                      s.mute,
                      " nonsense=",
                      s.nonsense,
                      " mad_verifier=",
                      s.mad_verifier);
}

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

class Simulation {
 public:
  explicit Simulation(const Options& options)
      : broken_(options.broken),
        rng_(options.seed),
        settings_(DrawSettings(&rng_, broken_)),
        machine_(MakeParams(settings_)) {}

  Outcome Run();

 private:
  struct Event {
    int64_t at;
    int64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };
  // What waits for a place to come free, and where tokens go.
  static coordinator::RequestParams MakeParams(const Settings& settings);

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
  void Do(const coordinator::CloseVerifier&) { CloseVerifierStream(); }
  void Do(const coordinator::CloseDrafter& action);
  void Do(const coordinator::ArmDrafterTimer& action);
  void Do(const coordinator::EmitTokens& action);
  void Do(const coordinator::FinishRequest& action);
  void CloseVerifierStream() {
    verifier_.reset();
    verifier_open_ = false;
    ++verifier_stream_;
  }

  void PumpDrafter();
  void FromDrafter(Proposal proposal);
  void Mangle(Proposal* proposal);
  void ToCoordinator(const Proposal& proposal);
  void ToVerifier(Proposal proposal);
  void PumpVerifier();
  void Step(int max_rows);
  void FromVerifier(Commit commit);
  void Garble(Commit* commit);
  void CheckVerifier();
  void MaybeLose();
  void CheckEnd();
  void CheckFigures();
  StreamBooks& books() { return books_[verifier_stream_]; }

  const Broken broken_;
  Rng rng_;
  const Settings settings_;
  RequestMachine machine_;
  Outcome outcome_;

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

  std::vector<int32_t> client_;
  std::optional<coordinator::FinishRequest> finish_;
  int64_t drafted_ = 0;
  int64_t dropped_ = 0;
  int64_t passes_ = 0;
  int64_t accepted_ = 0;
};

coordinator::RequestParams Simulation::MakeParams(const Settings& settings) {
  coordinator::RequestParams params;
  params.prompt = {0, 1, 2};
  params.max_tokens = settings.max_tokens;
  if (settings.stops) {
    params.stop_token_ids = {kToyStop};
  }
  params.speculation.enabled = settings.speculate;
  params.speculation.run_length = settings.run_length;
  params.speculation.window = settings.window;
  params.speculation.patience = settings.patience;
  params.vocab_size = kToyVocabulary;
  params.credit = settings.credit;
  params.max_moves = settings.max_moves;
  return params;
}

void Simulation::Send(Link link, int stream, std::function<void()> what) {
  int64_t& last = last_delivery_[{link, stream}];
  last = std::max(now_ + Delay(), last);
  const bool drafter = link == kToCoordinatorD || link == kToDrafter;
  At(last, [this, drafter, stream, what = std::move(what)] {
    const bool alive = drafter ? drafter_open_ && stream == source_
                               : verifier_open_ && stream == verifier_stream_;
    if (alive) {
      what();
    }
  });
}

void Simulation::Carry(const std::vector<Action>& actions) {
  if (actions.size() > 8) {
    Fail(absl::StrCat(actions.size(), " actions for one event"));
  }
  for (const Action& action : actions) {
    if (finish_.has_value()) {
      Fail("an action after the finish");
    }
    std::visit([this](const auto& what) { Do(what); }, action);
  }
  // A round trip takes at most 80.
  if (std::exchange(dismissed_, false) && !finish_.has_value() &&
      broken_ == Broken::kNone && settings_.nonsense == 0 &&
      settings_.mute == 0 && settings_.deadline >= 100) {
    Fail("a drafter was dismissed that did nothing wrong");
  }
}

void Simulation::Do(const coordinator::OpenVerifier& action) {
  if (verifier_open_) {
    Fail("a second verifier was opened");
  }
  ++verifier_stream_;
  verifier_open_ = true;
  stepping_ = false;
  books().opened_length = static_cast<int>(action.tokens.size());
  books().opened_source = action.source;
  verifier::VerifyParams params;
  params.tokens = action.tokens;
  params.prompt_length = settings_.prompt_length;
  params.max_tokens = settings_.max_tokens;
  if (settings_.stops) {
    params.stop_token_ids = {kToyStop};
  }
  params.source = action.source;
  params.decode_until = action.decode_until;
  params.patience = action.patience;
  params.max_draft_rows = action.max_draft_rows;
  Send(kToVerifier, verifier_stream_, [this, params] {
    absl::StatusOr<VerifySequence> opened =
        VerifySequence::Open(params, {kToyVocabulary, 4096});
    if (!opened.ok()) {
      Fail(absl::StrCat("open: ", opened.status().ToString()));
      return;
    }
    verifier_ = *std::move(opened);
    books().decode_until = params.decode_until;
    verifier_->OnPrefilled(Now());
    PumpVerifier();
  });
}

void Simulation::Do(const coordinator::SendProposal& action) {
  const Proposal& p = action.proposal;
  if (p.source != source_ ||
      static_cast<int>(p.tokens.size()) > settings_.run_length) {
    Fail("a proposal was passed on that should not have been");
  }
  books().forwarded += static_cast<int64_t>(p.tokens.size());
  Send(kToVerifier, verifier_stream_, [this, p] { ToVerifier(p); });
}

void Simulation::Do(const coordinator::SendDecodeTune& action) {
  Send(kToVerifier, verifier_stream_, [this, action] {
    const absl::Status status =
        verifier_->OnTune({action.patience, std::nullopt, action.decode_until});
    if (!status.ok()) {
      Fail(absl::StrCat("tune: ", status.ToString()));
    }
    books().decode_until = action.decode_until.value_or(books().decode_until);
    PumpVerifier();
  });
}

void Simulation::Do(const coordinator::OpenDrafter& action) {
  if (drafter_open_ || action.source <= source_) {
    Fail("a drafter was opened twice");
  }
  source_ = action.source;
  drafter_open_ = true;
  drafter_.reset();
  drafter_salt_ = rng_.Next();
  drafter_mute_ = rng_.Chance(settings_.mute / 2);
  if (rng_.Chance(settings_.no_draft_node)) {
    const int32_t source = source_;
    At(now_ + Delay(), [this, source] {
      if (drafter_open_ && source == source_) {
        drafter_open_ = false;
        Carry(machine_.OnDrafterClosed(
            source, absl::UnavailableError("no draft node"), false));
      }
    });
    At(now_ + rng_.Below(200),
       [this] { Carry(machine_.OnDrafterAvailable()); });
    return;
  }
  Send(kToDrafter, source_, [this, tokens = action.tokens] {
    absl::StatusOr<DraftPath> opened = DraftPath::Open(tokens,
                                                       settings_.prompt_length,
                                                       settings_.run_length,
                                                       settings_.window);
    if (!opened.ok()) {
      Fail(absl::StrCat("open: ", opened.status().ToString()));
      return;
    }
    drafter_ = *std::move(opened);
    drafter_end_ = drafter_->committed_length();
    PumpDrafter();
  });
}

void Simulation::Do(const coordinator::SendCommit& action) {
  Send(kToDrafter, action.source, [this, action] {
    if (!drafter_.has_value()) {
      return;  // No node took the stream, and nobody knows yet.
    }
    const absl::Status status =
        drafter_->OnCommit(action.position, action.tokens);
    if (!status.ok()) {
      Fail(absl::StrCat("commit: ", status.ToString()));
    }
    PumpDrafter();
  });
}

void Simulation::Do(const coordinator::SendRewind& action) {
  if (broken_ == Broken::kRewind) {
    return;
  }
  Send(kToDrafter, action.source, [this, action] {
    if (!drafter_.has_value()) {
      return;
    }
    if (action.position != drafter_->committed_length()) {
      Fail("a rewind that does not follow its commits");
    }
    if (!drafter_->OnRewind(action.position).ok()) {
      Fail("rewind");
    }
    PumpDrafter();
  });
}

void Simulation::Do(const coordinator::CloseDrafter& action) {
  if (action.source != source_) {
    Fail("the wrong drafter was closed");
  }
  drafter_open_ = false;
  dismissed_ = true;
  ++outcome_.drafters_lost;
}

void Simulation::Do(const coordinator::ArmDrafterTimer& action) {
  if (settings_.timers) {
    At(now_ + settings_.deadline, [this, action] {
      Carry(machine_.OnDrafterTimeout(action.source, action.owed));
    });
  }
}

void Simulation::Do(const coordinator::EmitTokens& action) {
  if (action.first_index != static_cast<int>(client_.size()) ||
      action.tokens.empty()) {
    Fail("tokens were emitted out of order");
  }
  client_.insert(client_.end(), action.tokens.begin(), action.tokens.end());
  const int count = static_cast<int>(client_.size());
  At(now_ + rng_.Below(settings_.client_delay + 1),
     [this, count] { Carry(machine_.OnClientTook(count)); });
}

void Simulation::Do(const coordinator::FinishRequest& action) {
  finish_ = action;
}

void Simulation::PumpDrafter() {
  for (;;) {
    const DraftPath::Work work = drafter_->NextWork();
    if (work.kind == DraftPath::Work::Kind::kNone) {
      return;
    }
    if (work.kind == DraftPath::Work::Kind::kDraft) {
      int count = work.max_tokens;
      if (rng_.Chance(settings_.silent)) {
        count = 0;
      } else if (rng_.Chance(settings_.partial)) {
        count = rng_.Below(work.max_tokens + 1);
      }
      DraftRun run;
      std::vector<int32_t> path(drafter_->path().begin(),
                                drafter_->path().end());
      const uint64_t salt = settings_.moody ? rng_.Next() : drafter_salt_;
      for (int i = 0; i < count; ++i) {
        path.push_back(
            ToyGuess(settings_.toy_seed, path, settings_.quality, salt));
        run.tokens.push_back(path.back());
      }
      drafter_->OnDrafted(std::move(run));
      continue;
    }
    const Proposal& p = work.proposal;
    const int end = p.position + static_cast<int>(p.tokens.size());
    if (p.based_on != drafter_->committed_length() ||
        end > p.based_on + settings_.window ||
        static_cast<int>(p.tokens.size()) > settings_.run_length) {
      Fail("a drafter overstepped its bounds");
    }
    if (p.position > std::max(drafter_end_, p.based_on)) {
      Fail("a drafter left a gap");
    }
    drafter_end_ = end;
    FromDrafter(p);
  }
}

void Simulation::FromDrafter(Proposal proposal) {
  proposal.source = source_;
  if ((broken_ == Broken::kEmpty && proposal.tokens.empty()) || drafter_mute_ ||
      rng_.Chance(settings_.mute / 20)) {
    return;
  }
  Send(kToCoordinatorD, source_, [this, proposal] { ToCoordinator(proposal); });
  if (rng_.Chance(settings_.nonsense)) {
    // A duplicate, or something like it; in order, or late.
    if (rng_.Chance(.7)) {
      Mangle(&proposal);
    }
    const int32_t source = source_;
    if (rng_.Chance(.5)) {
      Send(kToCoordinatorD, source_, [this, proposal] {
        ToCoordinator(proposal);
      });
    } else {
      // Late ones come even from streams that were closed.
      At(now_ + rng_.Below(100), [this, proposal, source] {
        if (drafter_open_ || source < source_) {
          ToCoordinator(proposal);
        }
      });
    }
  }
}

void Simulation::Mangle(Proposal* proposal) {
  const int length = static_cast<int>(machine_.log().size());
  switch (rng_.Below(10)) {
    case 0:  // Overlap with what came before.
      for (int i = rng_.Below(3); i >= 0 && proposal->position > 0; --i) {
        --proposal->position;
        const size_t at = static_cast<size_t>(proposal->position);
        proposal->tokens.insert(proposal->tokens.begin(),
                                at < machine_.log().size() && rng_.Chance(.8)
                                    ? machine_.log()[at]
                                    : rng_.Below(6));
      }
      break;
    case 1:  // A gap.
      proposal->position += 1 + rng_.Below(4);
      break;
    case 2:  // Says it knows what it does not.
      proposal->based_on = length;
      break;
    case 3:  // Anything within bounds.
      proposal->based_on = rng_.Below(length + 1);
      proposal->position =
          proposal->based_on +
          rng_.Below(settings_.window - settings_.run_length + 1);
      proposal->tokens.resize(
          static_cast<size_t>(rng_.Below(settings_.run_length + 1)));
      for (int32_t& token : proposal->tokens) {
        token = rng_.Below(kToyVocabulary);
      }
      break;
    case 4:  // An empty one.
      proposal->tokens.clear();
      break;
    case 5:
      proposal->tokens.assign(1, kToyVocabulary);
      break;
    case 6:
      proposal->tokens.assign(300, 0);
      break;
    case 7:
      proposal->position =
          rng_.Pick({-1, 1 << 20, std::numeric_limits<int32_t>::max()});
      break;
    case 8:
      proposal->based_on = rng_.Pick({-1, length + 1, 1 << 30});
      break;
    default:
      proposal->confidence =
          rng_.Chance(.5) ? 2.0f : std::numeric_limits<float>::quiet_NaN();
  }
}

void Simulation::ToCoordinator(const Proposal& proposal) {
  if (finish_.has_value()) {
    return;
  }
  Proposal patched = proposal;
  if (broken_ == Broken::kOpen) {
    patched.based_on = std::max(patched.based_on, books().opened_length);
  }
  const int64_t size = static_cast<int64_t>(patched.tokens.size());
  drafted_ += size;
  const std::vector<Action> actions = machine_.OnProposal(patched);
  const bool forwarded =
      std::any_of(actions.begin(), actions.end(), [](const Action& action) {
        return std::holds_alternative<coordinator::SendProposal>(action);
      });
  dropped_ += forwarded ? 0 : size;
  Carry(actions);
}

void Simulation::ToVerifier(Proposal proposal) {
  StreamBooks& b = books();
  if (broken_ == Broken::kSource) {
    proposal.source = b.opened_source;
  }
  if (broken_ == Broken::kFence) {
    if (proposal.based_on < b.broken_fence) {
      return;
    }
    for (size_t i = 0; i < proposal.tokens.size(); ++i) {
      const size_t at = static_cast<size_t>(proposal.position) + i;
      if (at < verifier_->log().size() &&
          verifier_->log()[at] != proposal.tokens[i]) {
        b.broken_fence =
            proposal.position + static_cast<int>(proposal.tokens.size());
        break;
      }
    }
  }
  if (!verifier_->done()) {
    b.received += static_cast<int64_t>(proposal.tokens.size());
  }
  if (absl::Status status = verifier_->OnProposal(proposal); !status.ok()) {
    Fail(absl::StrCat("proposal: ", status.ToString()));
  }
  CheckVerifier();
  PumpVerifier();
}

void Simulation::CheckVerifier() {
  const DecodeCounters& c = verifier_->counters();
  const StreamBooks& b = books();
  const int64_t pending = static_cast<int64_t>(verifier_->pending().size());
  if (b.received != b.rows + c.overlapped + c.stale + c.trimmed + pending) {
    Fail(absl::StrCat("a verifier received ",
                      b.received,
                      " draft tokens, ",
                      b.rows,
                      " verified, ",
                      c.overlapped,
                      " overlapped, ",
                      c.stale,
                      " stale, ",
                      c.trimmed,
                      " trimmed, ",
                      pending,
                      " pending"));
  }
  if (pending > settings_.window) {
    Fail("more is pending than a drafter may have outstanding");
  }
}

void Simulation::PumpVerifier() {
  if (stepping_ || !verifier_.has_value()) {
    return;
  }
  const VerifySequence::Next next = verifier_->NextAt(Now());
  if (next.kind == VerifySequence::Next::Kind::kRun) {
    Step(rng_.Chance(.1) ? rng_.Below(settings_.row_budget + 1)
                         : settings_.row_budget);
  } else if (next.kind == VerifySequence::Next::Kind::kWait &&
             next.at != absl::InfiniteFuture()) {
    const int stream = verifier_stream_;
    At(absl::ToUnixMillis(next.at), [this, stream] {
      if (verifier_open_ && stream == verifier_stream_) {
        PumpVerifier();
      }
    });
  }
}

void Simulation::Step(int max_rows) {
  const absl::Span<const int32_t> rows = verifier_->BeginStep(max_rows);
  const std::vector<int32_t> run(rows.begin(), rows.end());
  if (static_cast<int>(run.size()) > std::min(max_rows, settings_.window)) {
    Fail("a pass has more rows than its budget");
  }
  // Every row is computed, as an engine does, the ones behind a wrong one too.
  std::vector<int32_t> prefix(verifier_->log().begin(), verifier_->log().end());
  std::vector<int32_t> target;
  for (size_t i = 0; i <= run.size(); ++i) {
    target.push_back(ToyTarget(settings_.toy_seed, prefix));
    prefix.push_back(i < run.size() ? run[i] : 0);
  }
  const Commit commit =
      verifier_->FinishStep(target, Now() + absl::Milliseconds(5));
  books().rows += static_cast<int64_t>(run.size());
  int accepted = 0;
  while (accepted < static_cast<int>(run.size()) &&
         accepted < static_cast<int>(commit.tokens.size()) &&
         run[static_cast<size_t>(accepted)] ==
             target[static_cast<size_t>(accepted)]) {
    ++accepted;
  }
  if (commit.num_proposed != static_cast<int>(run.size()) ||
      commit.num_accepted != accepted) {
    Fail("a commit's figures are wrong");
  }
  CheckVerifier();
  if (static_cast<int>(verifier_->log().size()) > books().decode_until) {
    Fail("a verifier ran beyond its credit");
  }
  FromVerifier(commit);
  stepping_ = true;
  const int stream = verifier_stream_;
  At(now_ + 5, [this, stream] {
    if (verifier_open_ && stream == verifier_stream_) {
      stepping_ = false;
      PumpVerifier();
    }
  });
}

void Simulation::FromVerifier(Commit commit) {
  const auto deliver = [this](const Commit& what) {
    Send(kToCoordinatorV, verifier_stream_, [this, what] {
      const size_t before = machine_.log().size();
      const int stream = verifier_stream_;
      const std::vector<Action> actions = machine_.OnCommit(what);
      if (machine_.log().size() > before) {
        ++passes_;
        accepted_ += what.num_accepted;
        books_[stream].verified += what.num_proposed;
        books_[stream].counters = what.counters;
      }
      Carry(actions);
      if (verifier_stream_ != stream &&
          !(finish_.has_value() && finish_->status.ok())) {
        ++outcome_.verifiers_lost;
      }
    });
  };
  const bool mad = rng_.Chance(settings_.mad_verifier);
  if (mad && rng_.Chance(.5)) {
    // Garbled in a way that the coordinator can see: a lost verifier.
    Garble(&commit);
    deliver(commit);
    return;
  }
  deliver(commit);
  if (mad) {
    deliver(commit);
  }
}

void Simulation::Garble(Commit* commit) {
  switch (rng_.Below(6)) {
    case 0:
      ++commit->position;
      break;
    case 1:
      commit->position -= 1;
      commit->tokens.insert(commit->tokens.begin(), kToyVocabulary - 1);
      commit->num_proposed += 1;
      commit->num_accepted = 0;
      commit->tokens[0] = kToyVocabulary;
      break;
    case 2:
      commit->tokens.assign(100, 0);
      commit->num_proposed = 100;
      break;
    case 3:
      commit->counters.stale += 1000000;
      break;
    case 4:
      commit->num_accepted = static_cast<int32_t>(commit->tokens.size()) + 1;
      break;
    default:
      commit->tokens.clear();
      commit->num_accepted = 0;
      commit->finish = FinishReason::kNone;
  }
}

void Simulation::MaybeLose() {
  if (verifier_open_ && rng_.Chance(settings_.crash)) {
    CloseVerifierStream();
    ++outcome_.verifiers_lost;
    Carry(machine_.OnVerifierClosed(rng_.Chance(.5)
                                        ? absl::UnavailableError("crashed")
                                        : absl::InternalError("broken"),
                                    true));
  }
  if (!finish_.has_value() && drafter_open_ &&
      rng_.Chance(settings_.lose_draft)) {
    drafter_open_ = false;
    ++outcome_.drafters_lost;
    Carry(machine_.OnDrafterClosed(
        source_, absl::UnavailableError("crashed"), true));
  }
}

Outcome Simulation::Run() {
  outcome_.settings = Describe(settings_);
  Carry(machine_.Start());
  int events = 0;
  while (!finish_.has_value() && outcome_.failure.empty()) {
    if (queue_.empty()) {
      Fail("hang");
    } else if (++events > 20000) {
      Fail("too long");
    } else {
      const Event event = queue_.top();
      queue_.pop();
      now_ = event.at;
      event.what();
      if (!finish_.has_value()) {
        MaybeLose();
      }
    }
  }
  if (outcome_.failure.empty()) {
    CheckEnd();
  }
  outcome_.passes = machine_.figures().num_passes;
  outcome_.accepted_tokens = machine_.figures().num_accepted_draft_tokens;
  outcome_.completion_tokens = static_cast<int64_t>(client_.size());
  return outcome_;
}

void Simulation::CheckEnd() {
  if (!machine_.finished() || verifier_open_ || drafter_open_) {
    Fail("a stream outlived the request");
  }
  const std::vector<int32_t> prompt = {0, 1, 2};
  ToyText truth = ToyDecode(
      settings_.toy_seed, prompt, settings_.max_tokens, settings_.stops);
  if (!finish_->status.ok()) {
    if (outcome_.verifiers_lost <= settings_.max_moves ||
        finish_->status.code() != absl::StatusCode::kUnavailable) {
      Fail(absl::StrCat("the request failed: ", finish_->status.ToString()));
    }
    truth.tokens.resize(std::min(truth.tokens.size(), client_.size()));
  } else if (finish_->reason != truth.finish ||
             (truth.finish == FinishReason::kStop) !=
                 (finish_->stop_token_id == kToyStop)) {
    Fail("wrong finish");
  }
  if (client_ != truth.tokens) {
    Fail("wrong text");
  }
  const absl::Span<const int32_t> log = machine_.log();
  if (!std::equal(client_.begin(), client_.end(), log.begin() + 3, log.end())) {
    Fail("the log is not what was emitted");
  }
  CheckFigures();
}

void Simulation::CheckFigures() {
  const coordinator::SpeculationFigures& f = machine_.figures();
  int64_t verified = 0;
  int64_t unused = 0;
  int64_t dropped = dropped_;
  int64_t trimmed = 0;
  for (const auto& [stream, b] : books_) {
    const int64_t said =
        b.counters.overlapped + b.counters.stale + b.counters.trimmed;
    verified += b.verified;
    trimmed += b.counters.trimmed;
    dropped += b.counters.overlapped + b.counters.stale;
    unused += b.forwarded - b.verified - said;
  }
  int64_t steps = 0;
  int64_t in_histogram = 0;
  for (size_t j = 0; j < f.acceptance_histogram.size(); ++j) {
    steps += f.acceptance_histogram[j];
    in_histogram += f.acceptance_histogram[j] * static_cast<int64_t>(j);
  }
  int64_t rows = 0;
  int64_t accepted_rows = 0;
  for (size_t i = 0; i < f.draft_tokens_per_position.size(); ++i) {
    rows += f.draft_tokens_per_position[i];
    accepted_rows += f.accepted_tokens_per_position[i];
  }
  const bool right =
      f.num_drafted_tokens == drafted_ && f.num_draft_tokens == verified &&
      f.num_trimmed_tokens == trimmed &&
      f.num_overlapped_tokens + f.num_stale_tokens == dropped &&
      f.num_unused_tokens == unused && unused >= 0 &&
      f.num_drafted_tokens == f.num_draft_tokens + f.num_overlapped_tokens +
                                  f.num_stale_tokens + f.num_trimmed_tokens +
                                  f.num_unused_tokens &&
      f.num_passes == passes_ && f.num_accepted_draft_tokens == accepted_ &&
      f.num_accepted_draft_tokens <= f.num_draft_tokens &&
      f.num_spec_steps == steps && in_histogram == accepted_ &&
      rows == verified && accepted_rows == accepted_ &&
      // A pass emits its accepted tokens and one of its own, save where a stop
      // falls on an accepted one.
      static_cast<int64_t>(client_.size()) <= passes_ + accepted_ &&
      static_cast<int64_t>(client_.size()) >= passes_ + accepted_ - 1;
  if (!right) {
    Fail(absl::StrCat("figures do not add up: drafted ",
                      f.num_drafted_tokens,
                      " (",
                      drafted_,
                      "), verified ",
                      f.num_draft_tokens,
                      " (",
                      verified,
                      "), overlapped + stale ",
                      f.num_overlapped_tokens,
                      " + ",
                      f.num_stale_tokens,
                      " (",
                      dropped,
                      "), trimmed ",
                      f.num_trimmed_tokens,
                      " (",
                      trimmed,
                      "), unused ",
                      f.num_unused_tokens,
                      " (",
                      unused,
                      "), passes ",
                      f.num_passes,
                      " (",
                      passes_,
                      "), accepted ",
                      f.num_accepted_draft_tokens,
                      " (",
                      accepted_,
                      ")"));
  }
}

}  // namespace

Outcome Simulate(const Options& options) { return Simulation(options).Run(); }

}  // namespace specwire::simulation
