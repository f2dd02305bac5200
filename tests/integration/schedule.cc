// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/schedule.h"

#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"

namespace specwire::simulation {

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
  s.stop_text = rng->Chance(.3);
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
  s.ratio = rng->Chance(.2);
  if (s.ratio) {
    s.window = s.run_length;
    s.patience = absl::InfiniteDuration();
  }
  s.adapt = s.patience != absl::InfiniteDuration() && rng->Chance(.5);
  if (s.adapt) {
    s.pays = rng->Chance(.5);
    s.free_settings = rng->Chance(.7);
    s.first_attempt = rng->Pick({1, 2, 5, 20});
    // Long enough to pause, try again and pause again.
    s.max_tokens += rng->Pick({0, 0, 100, 200});
  }
  if (rng->Chance(.5)) {
    s.hang = rng->Pick({0.0, .01, .03});
    s.hang_limit = rng->Pick({10, 100, 1000});
    s.refuse = rng->Pick({0.0, .1, .5});
    s.no_verifier = rng->Pick({0.0, 0.0, .1});
    s.coordinator_crash = rng->Pick({0.0, .003, .02});
  }
  if (!s.ratio && rng->Chance(.4)) {
    s.local_run_length = rng->Pick({1, 3, 8});
    s.local_quality = rng->Pick({0.0, .5, .9, 1.0});
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
                      " adapt=",
                      s.adapt,
                      " free_settings=",
                      s.free_settings,
                      " pays=",
                      s.pays,
                      " first_attempt=",
                      s.first_attempt,
                      " ratio=",
                      s.ratio,
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
                      " stop_text=",
                      s.stop_text,
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
                      s.mad_verifier,
                      " hang=",
                      s.hang,
                      " hang_limit=",
                      s.hang_limit,
                      " refuse=",
                      s.refuse,
                      " no_verifier=",
                      s.no_verifier,
                      " coordinator_crash=",
                      s.coordinator_crash,
                      " local_run_length=",
                      s.local_run_length,
                      " local_quality=",
                      s.local_quality);
}

void MangleProposal(const Settings& settings,
                    absl::Span<const int32_t> log,
                    Rng* rng,
                    Proposal* proposal) {
  const int length = static_cast<int>(log.size());
  switch (rng->Below(10)) {
    case 0:  // Overlap with what came before.
      for (int i = rng->Below(3); i >= 0 && proposal->position > 0; --i) {
        --proposal->position;
        const size_t at = static_cast<size_t>(proposal->position);
        proposal->tokens.insert(
            proposal->tokens.begin(),
            at < log.size() && rng->Chance(.8) ? log[at] : rng->Below(6));
      }
      break;
    case 1:  // A gap.
      proposal->position += 1 + rng->Below(4);
      break;
    case 2:  // Says it knows what it does not.
      proposal->based_on = length;
      break;
    case 3:  // Anything within bounds.
      proposal->based_on = rng->Below(length + 1);
      proposal->position =
          proposal->based_on +
          rng->Below(settings.window - settings.run_length + 1);
      proposal->tokens.resize(
          static_cast<size_t>(rng->Below(settings.run_length + 1)));
      for (int32_t& token : proposal->tokens) {
        token = rng->Below(kToyVocabulary);
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
          rng->Pick({-1, 1 << 20, std::numeric_limits<int32_t>::max()});
      break;
    case 8:
      proposal->based_on = rng->Pick({-1, length + 1, 1 << 30});
      break;
    default:
      proposal->confidence =
          rng->Chance(.5) ? 2.0f : std::numeric_limits<float>::quiet_NaN();
  }
}

void GarbleCommit(Rng* rng, Commit* commit) {
  switch (rng->Below(6)) {
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
      commit->tokens.assign(1000, 0);
      commit->num_proposed = 1000;
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

}  // namespace specwire::simulation
