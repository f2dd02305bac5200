// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/protocol_simulation.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/simulation.h"

namespace specwire::simulation {

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
  params.local_run_length = action.local_run_length;
  params.local_enough = action.local_enough;
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
  const int count = static_cast<int>(client_.size());
  At(now_ + rng_.Below(settings_.client_delay + 1),
     [this, count] { Carry(machine_.OnClientTook(count)); });
}

void Simulation::Do(const coordinator::FinishRequest& action) {
  finish_ = action;
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
  outcome_.stopped_by_text = finish_.has_value() && finish_->stop_text;
  return outcome_;
}

Outcome Simulate(const Options& options) { return Simulation(options).Run(); }

}  // namespace specwire::simulation
