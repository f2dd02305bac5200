// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/engine_sequence.h"

#include <algorithm>
#include <utility>

namespace specwire::verifier {
namespace {

// What survives less likely is worth no row even in a pass of one sequence,
// where each further one costs 6 to 8 % of the pass.
constexpr float kLeastSurvival = 0.03f;

}  // namespace

void Decoding::FindDraft(const LocalPrices& prices, LocalDrafter* drafter) {
  if (local == nullptr) return;
  // Even where no draft is wanted any more the drafter is to see the text,
  // which it keeps. Under the ratio rule what is looked up, its length
  // included, depends on the text alone.
  DraftRun found = drafter->LookUp(
      verify.log(),
      {.max_tokens = std::max(verify.max_local_tokens(), 1),
       .min_survival =
           verify.rule() == AcceptanceRule::kRatio ? 0 : kLeastSurvival},
      local.get());
  verify.ExpectLocalDraft(drafter->Plan(
      {.log = verify.log(),
       .max_tokens = verify.max_local_tokens(),
       .tokens_left =
           verify.max_length() - static_cast<int>(verify.log().size())},
      found,
      prices,
      local.get()));
  verify.SetLocalDraft(std::move(found));
}

absl::Span<const int32_t> EngineSequence::tokens() const {
  return score != nullptr ? absl::MakeConstSpan(score->tokens)
                          : decoding->verify.log();
}

int EngineSequence::num_to_compute() const {
  return static_cast<int>(tokens().size()) - (score != nullptr ? 1 : 0);
}

int EngineSequence::num_uncomputed() const {
  return num_to_compute() - (running() ? kv->length() : 0);
}

int64_t EngineSequence::num_committed() const {
  if (decoding == nullptr) return 0;
  return static_cast<int64_t>(decoding->verify.log().size()) -
         decoding->verify.prompt_length();
}

bool EngineSequence::IsBlocked(absl::Time now) const {
  return decoding != nullptr && decoding->verify.NextAt(now).kind ==
                                    VerifySequence::Next::Kind::kBlocked;
}

Standing EngineSequence::standing(const FairShare& users,
                                  const FairShare& tenants) const {
  return {.priority = priority,
          .user_served = users.served(user),
          .served = tenants.served(tenant),
          .arrival = arrival};
}

VictimCandidate EngineSequence::victim(absl::Time now) const {
  return {.num_preemptions = num_preemptions,
          .priority = priority,
          .blocked = IsBlocked(now),
          .arrival = arrival};
}

PassCandidate EngineSequence::Candidate() const {
  PassCandidate candidate;
  candidate.length = kv->length();
  candidate.uncomputed = num_uncomputed();
  candidate.all_logits = kv->length() + 1 < wanted.end;
  if (decoding == nullptr) {
    // Its last row is like those before; the planner keeps back the last of one
    // that does not step.
    ++candidate.uncomputed;
    return candidate;
  }
  const VerifySequence& verify = decoding->verify;
  candidate.draft_rows = verify.num_step_rows();
  candidate.lock_step = verify.lock_step();
  candidate.draft_survival = verify.step_survival();
  candidate.survival = &verify.survival();
  return candidate;
}

}  // namespace specwire::verifier
