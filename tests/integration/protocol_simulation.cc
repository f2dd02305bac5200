// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/protocol_simulation.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/simulation.h"

namespace specwire::simulation {

Simulation::Simulation(const Options& options,
                       int life,
                       std::vector<int32_t> resumed)
    : broken_(options.broken),
      rng_(options.seed),
      settings_(DrawSettings(&rng_, broken_)),
      machine_(MakeParams(settings_, resumed), MakeJudge(), &trace_),
      num_resumed_(static_cast<int>(resumed.size())),
      client_(resumed),
      judged_(std::move(resumed)) {
  // A stop token is not asked about.
  if (settings_.stops && !judged_.empty() && judged_.back() == kToyStop) {
    judged_.pop_back();
  }
  for (int i = 0; i < life; ++i) rng_ = Rng(rng_.Next());
}

coordinator::RequestParams Simulation::MakeParams(
    const Settings& settings, const std::vector<int32_t>& resumed) {
  coordinator::RequestParams params;
  params.prompt = {0, 1, 2};
  params.resumed = resumed;
  if (settings.stops && !resumed.empty() && resumed.back() == kToyStop) {
    params.resumed_stop = kToyStop;
  } else if (settings.stop_text && EndsWithToyStopText(resumed)) {
    params.resumed_stop_text = true;
  }
  params.max_tokens = settings.max_tokens;
  if (settings.stops) {
    params.stop_token_ids = {kToyStop};
  }
  params.speculation.enabled = settings.speculate;
  params.speculation.run_length = settings.run_length;
  params.speculation.window = settings.window;
  params.speculation.patience = settings.patience;
  params.speculation.rule =
      settings.ratio ? AcceptanceRule::kRatio : AcceptanceRule::kCoupled;
  if (settings.adapt) {
    params.adapt.emplace();
    params.speculation.fixed_run_length = !settings.free_settings;
    params.speculation.fixed_window = !settings.free_settings;
    params.adapt->estimates.pays = settings.pays;
    params.adapt->first_attempt = settings.first_attempt;
  }
  params.local_run_length = settings.local_run_length;
  params.vocab_size = kToyVocabulary;
  params.credit = settings.credit;
  params.max_moves = settings.max_moves;
  return params;
}

coordinator::TokenJudge Simulation::MakeJudge() {
  if (!settings_.stop_text) return nullptr;
  return [this](int32_t token) {
    judged_.push_back(token);
    return EndsWithToyStopText(judged_);
  };
}

void Simulation::Send(Link link, int stream, std::function<void()> what) {
  int64_t& last = last_delivery_[{link, stream}];
  last = std::max(now_ + Delay(), last);
  const bool drafter = link == kToCoordinatorD || link == kToDrafter;
  const bool to_node = link == kToDrafter || link == kToVerifier;
  At(last, [this, drafter, to_node, stream, what = std::move(what)] {
    if (!IsAlive(drafter, stream)) return;
    Side& side = drafter ? drafter_side_ : verifier_side_;
    if (to_node && side.hung) {
      side.waiting.emplace_back(stream, what);
    } else {
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
      settings_.mute == 0 && settings_.hang == 0 && settings_.deadline >= 100) {
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
  if (OpenFails()) return;
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
  params.local_run_length = action.local_run_length;
  params.local_enough = action.local_enough;
  params.trace = true;
  if (settings_.ratio) params.rule = AcceptanceRule::kRatio;
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
    DraftLocally();
    PumpVerifier();
  });
}

void Simulation::Do(const coordinator::SendProposal& action) {
  const Proposal& p = action.proposal;
  if (p.source != source_ ||
      static_cast<int>(p.tokens.size()) > MaxRunLength()) {
    Fail("a proposal was passed on that should not have been");
  }
  books().forwarded += static_cast<int64_t>(p.tokens.size());
  Send(kToVerifier, verifier_stream_, [this, p] { ToVerifier(p); });
}

void Simulation::Do(const coordinator::SendDecodeTune& action) {
  Send(kToVerifier, verifier_stream_, [this, action] {
    const absl::Status status =
        verifier_->OnTune({.patience = action.patience,
                           .max_draft_rows = std::nullopt,
                           .decode_until = action.decode_until,
                           .local_enough = action.local_enough});
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
  drafter_side_ = {};
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
  Send(kToDrafter, source_, [this, action] {
    absl::StatusOr<DraftPath> opened = DraftPath::Open(
        action.tokens,
        settings_.prompt_length,
        action.run_length,
        action.window,
        settings_.ratio ? AcceptanceRule::kRatio : AcceptanceRule::kCoupled,
        action.min_survival);
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

void Simulation::Do(const coordinator::SendDraftTune& action) {
  Send(kToDrafter, action.source, [this, action] {
    if (!drafter_.has_value()) return;
    const absl::Status status =
        drafter_->OnTune(action.run_length, action.window, action.min_survival);
    if (!status.ok()) {
      Fail(absl::StrCat("draft tune: ", status.ToString()));
    }
    PumpDrafter();
  });
}

void Simulation::Do(const coordinator::CloseDrafter& action) {
  if (action.source != source_) {
    Fail("the wrong drafter was closed");
  }
  drafter_open_ = false;
  dismissed_ = action.lost;
  outcome_.drafters_lost += action.lost ? 1 : 0;
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
  CountTraced(*action.trace);
  const int count = static_cast<int>(client_.size());
  At(now_ + rng_.Below(settings_.client_delay + 1),
     [this, count] { Carry(machine_.OnClientTook(count)); });
}

void Simulation::Do(const coordinator::FinishRequest& action) {
  finish_ = action;
  CountTraced(*action.trace);
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

bool Simulation::OpenFails() {
  const bool none = rng_.Chance(settings_.no_verifier);
  if (!none && !rng_.Chance(settings_.refuse)) return false;
  // What is sent meanwhile is for nobody.
  verifier_side_.hung = true;
  const int stream = verifier_stream_;
  // That there is none is known at once, a refusal takes its way.
  At(now_ + (none ? 0 : Delay()), [this, none, stream] {
    if (!IsAlive(/*drafter=*/false, stream)) return;
    CloseVerifierStream();
    if (none) {
      no_verifier_ = true;
      Carry(machine_.OnVerifierClosed(absl::UnavailableError("no verifier"),
                                      /*could_open=*/false));
    } else {
      ++outcome_.refusals;
      Carry(machine_.OnVerifierRefused());
    }
  });
  return true;
}

void Simulation::MaybeHang() {
  if (verifier_open_ && rng_.Chance(settings_.hang)) Hang(/*drafter=*/false);
  if (drafter_open_ && rng_.Chance(settings_.hang)) Hang(/*drafter=*/true);
}

void Simulation::Hang(bool drafter) {
  Side& side = drafter ? drafter_side_ : verifier_side_;
  if (std::exchange(side.hung, true)) return;
  ++outcome_.hangs;
  const int stream = drafter ? source_ : verifier_stream_;
  const int time = rng_.Pick({5, 50, 500});
  if (drafter || time <= settings_.hang_limit) {
    At(now_ + time, [this, drafter, stream] {
      if (IsAlive(drafter, stream)) Wake(drafter);
    });
    return;
  }
  // Whatever it says later is for a stream that nobody reads.
  At(now_ + settings_.hang_limit, [this, stream] {
    if (!IsAlive(/*drafter=*/false, stream)) return;
    CloseVerifierStream();
    ++outcome_.verifiers_lost;
    Carry(machine_.OnVerifierClosed(absl::UnavailableError("it hangs"), true));
  });
}

void Simulation::Wake(bool drafter) {
  Side& side = drafter ? drafter_side_ : verifier_side_;
  side.hung = false;
  // What it does may close the stream, and with it the side.
  auto waiting = std::move(side.waiting);
  side.waiting.clear();
  for (const auto& [stream, what] : waiting) {
    if (!finish_.has_value() && IsAlive(drafter, stream)) what();
  }
  if (!drafter && !finish_.has_value() && verifier_open_) PumpVerifier();
}

Outcome Simulation::Run() {
  outcome_.settings = Describe(settings_);
  Carry(machine_.Start());
  int events = 0;
  while (!finish_.has_value() && !crashed_ && outcome_.failure.empty()) {
    if (rng_.Chance(settings_.coordinator_crash)) {
      crashed_ = true;
    } else if (queue_.empty()) {
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
      if (!finish_.has_value()) {
        MaybeHang();
      }
    }
  }
  if (outcome_.failure.empty() && !crashed_) {
    CheckEnd();
  }
  outcome_.passes = machine_.figures().num_passes;
  outcome_.accepted_tokens = machine_.figures().num_accepted_draft_tokens;
  outcome_.completion_tokens =
      static_cast<int64_t>(client_.size()) - num_resumed_;
  outcome_.stopped_by_text = finish_.has_value() && finish_->stop_text;
  return outcome_;
}

Outcome Simulate(const Options& options) {
  // So many coordinators die at most: a text that takes longer than a life
  // gets ahead in each.
  constexpr int kMaxLives = 200;
  Outcome total;
  std::vector<int32_t> client;
  for (int life = 0; life < kMaxLives; ++life) {
    Simulation simulation(options, life, client);
    const Outcome one = simulation.Run();
    client = simulation.client();
    total.failure = one.failure;
    total.settings = one.settings;
    total.passes += one.passes;
    total.completion_tokens += one.completion_tokens;
    total.accepted_tokens += one.accepted_tokens;
    total.drafters_lost += one.drafters_lost;
    total.verifiers_lost += one.verifiers_lost;
    total.hangs += one.hangs;
    total.refusals += one.refusals;
    total.stopped_by_text = one.stopped_by_text;
    if (!one.failure.empty() || !simulation.goes_on()) return total;
    ++total.coordinators_lost;
  }
  total.failure = "no coordinator lived long enough";
  return total;
}

}  // namespace specwire::simulation
