// SPDX-License-Identifier: Apache-2.0
#include "coordinator/request_trace.h"

#include <algorithm>
#include <limits>

#include "common/drafting/drafter_names.h"
#include "common/sampling/ratio.h"

namespace specwire::coordinator {
namespace {

// Draft tokens under way, proposals and lengths that are remembered.
constexpr size_t kMaxSent = kMaxDraftFates;
constexpr size_t kMaxTold = 1024;
// Settled tokens that wait to be told.
constexpr size_t kMaxSettled = kMaxTracedDrafts;

template <class Map>
void DropOldest(size_t most, Map* map) {
  while (map->size() > most) map->erase(map->begin());
}

absl::Duration NotNegative(absl::Duration duration) {
  return std::max(duration, absl::ZeroDuration());
}

// Nothing of a distribution that is none: the proposal is a bad one.
std::optional<double> ProbabilityIn(const DraftDistribution& q, int32_t token) {
  if (q.token_ids.size() != q.probabilities.size()) return std::nullopt;
  const double probability = DraftProbability(q, token);
  if (!(probability >= 0 && probability <= 1)) return std::nullopt;
  return probability;
}

}  // namespace

RequestTrace::RequestTrace(const Clock* clock, absl::Duration since_arrival)
    : clock_(clock), arrival_(clock->Now() - since_arrival) {}

void RequestTrace::OnDrafterOpened(int32_t source,
                                   std::string node,
                                   std::string drafter) {
  drafters_[source] = {std::move(node), std::move(drafter), {}};
  DropOldest(kMaxTold, &drafters_);
}

void RequestTrace::OnDrafterTold(int32_t source, int length) {
  const auto it = drafters_.find(source);
  if (it == drafters_.end()) return;
  it->second.told[length] = clock_->Now();
  DropOldest(kMaxTold, &it->second.told);
}

std::vector<RequestTrace::Sent> RequestTrace::Parse(const Proposal& proposal) {
  std::vector<Sent> tokens(proposal.tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i].source = proposal.source;
    TracedDraft& draft = tokens[i].draft;
    draft.position = static_cast<int32_t>(
        std::min<int64_t>(int64_t{proposal.position} + static_cast<int64_t>(i),
                          std::numeric_limits<int32_t>::max()));
    draft.token_id = proposal.tokens[i];
    if (i < proposal.q.size()) {
      draft.draft_probability = ProbabilityIn(proposal.q[i], draft.token_id);
    } else if (proposal.trace.has_value() &&
               i < proposal.trace->chances.size()) {
      draft.draft_probability = static_cast<double>(proposal.trace->chances[i]);
    }
  }
  return tokens;
}

RequestTrace::Forwarded RequestTrace::Timed(const Proposal& proposal) const {
  Forwarded timed;
  timed.came = timed.sent = clock_->Now();
  if (!proposal.trace.has_value()) return timed;
  timed.drafting = proposal.trace->drafting;
  const auto drafter = drafters_.find(proposal.source);
  if (drafter == drafters_.end()) return timed;
  const auto told = drafter->second.told.find(proposal.based_on);
  if (told == drafter->second.told.end()) return timed;
  timed.network = NotNegative(timed.came - told->second - proposal.trace->held);
  return timed;
}

void RequestTrace::OnForwarded(const Proposal& proposal) {
  for (Sent& sent : Parse(proposal)) sent_[num_sent_++] = std::move(sent);
  if (!proposal.tokens.empty()) forwarded_[num_sent_] = Timed(proposal);
  while (sent_.size() > kMaxSent) {
    sent_.erase(sent_.begin());
    ++num_left_out_;
  }
  DropOldest(kMaxTold, &forwarded_);
}

void RequestTrace::OnDropped(const Proposal& proposal, int64_t overlapped) {
  int64_t index = 0;
  for (Sent& sent : Parse(proposal)) {
    Settle(std::move(sent),
           index++ < overlapped ? DraftOutcome::kOverlapped
                                : DraftOutcome::kStale);
  }
}

void RequestTrace::Settle(Sent sent, DraftOutcome outcome) {
  if (settled_.size() >= kMaxSettled) {
    ++num_left_out_;
    return;
  }
  sent.draft.outcome = outcome;
  settled_.push_back(std::move(sent));
}

void RequestTrace::OnVerifierOpened() {
  LoseSent();
  verifier_clock_.reset();
  clock_start_.reset();
}

absl::Duration RequestTrace::Tick(const PassTimes& times) {
  const absl::Duration start = verifier_clock_.has_value()
                                   ? *verifier_clock_ + NotNegative(times.wait)
                                   : absl::ZeroDuration();
  verifier_clock_ = start + NotNegative(times.verify);
  return start;
}

void RequestTrace::LoseSent() {
  for (auto& [number, sent] : sent_) {
    if (unused_.size() >= kMaxSettled) {
      ++num_left_out_;
    } else {
      unused_.push_back(std::move(sent));
    }
  }
  sent_.clear();
  forwarded_.clear();
  num_sent_ = 0;
}

std::optional<RequestTrace::Sent> RequestTrace::TakeSent(int64_t number) {
  auto node = sent_.extract(number);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

void RequestTrace::TakeDropped(const CommitTrace& trace, size_t first) {
  for (size_t i = first; i < trace.drafts.size(); ++i) {
    const DraftFate& fate = trace.drafts[i];
    if (!fate.number.has_value()) continue;
    if (std::optional<Sent> sent = TakeSent(*fate.number)) {
      Settle(*std::move(sent), fate.outcome);
    }
  }
}

TracedPass RequestTrace::OnPass(const Commit& commit,
                                const PassTimes& times,
                                const Share& share) {
  TracedPass pass;
  pass.position = commit.position + static_cast<int32_t>(share.first);
  pass.verifier = verifier_;
  pass.times = TimesOf(commit, times);
  for (size_t i = share.first; i < share.first + share.size; ++i) {
    TracedChoice choice;
    choice.token_id = commit.tokens[i];
    choice.accepted = i < share.first + static_cast<size_t>(share.num_accepted);
    if (commit.trace.has_value() && i < commit.trace->choices.size()) {
      choice.target = commit.trace->choices[i];
    }
    pass.choices.push_back(choice);
  }
  if (commit.trace.has_value()) {
    AddVerified(commit, share, &pass);
    TakeDropped(*commit.trace, static_cast<size_t>(commit.num_proposed));
  }
  for (const Sent& sent : std::exchange(settled_, {})) Add(sent, &pass);
  pass.num_left_out += std::exchange(num_left_out_, 0);
  return pass;
}

void RequestTrace::AddVerified(const Commit& commit,
                               const Share& share,
                               TracedPass* pass) {
  const std::vector<DraftFate>& fates = commit.trace->drafts;
  const size_t size =
      std::min(fates.size(), static_cast<size_t>(commit.num_proposed));
  const size_t end = share.first + static_cast<size_t>(share.num_accepted);
  for (size_t i = 0; i < size; ++i) {
    const DraftFate& fate = fates[i];
    // What a commit repeats, and what lies behind a stop text, is not emitted.
    DraftOutcome outcome = DraftOutcome::kDiscarded;
    if (i >= share.first && i < end) {
      outcome = DraftOutcome::kAccepted;
    } else if (i == end && i < share.first + share.size) {
      outcome = DraftOutcome::kRejected;
    }
    if (!fate.number.has_value()) {
      AddLocal({.position = commit.position + static_cast<int32_t>(i),
                .token_id = fate.token_id,
                .outcome = outcome,
                .draft_probability = fate.draft_probability,
                .target = fate.target},
               pass);
    } else if (std::optional<Sent> sent = TakeSent(*fate.number)) {
      sent->draft.outcome = outcome;
      sent->draft.target = fate.target;
      Add(*sent, pass);
    }
  }
}

void RequestTrace::OnEmptyCommit(const Commit& commit, const PassTimes& times) {
  Tick(times);
  if (!commit.trace.has_value()) return;
  TakeDropped(*commit.trace, static_cast<size_t>(commit.num_proposed));
}

TracedPass RequestTrace::OnFinished(int length) {
  LoseSent();
  TracedPass pass;
  pass.position = length;
  pass.verifier = verifier_;
  for (const Sent& sent : std::exchange(settled_, {})) Add(sent, &pass);
  for (const Sent& sent : std::exchange(unused_, {})) Add(sent, &pass);
  pass.num_left_out += std::exchange(num_left_out_, 0);
  return pass;
}

void RequestTrace::Add(const Sent& sent, TracedPass* pass) const {
  const auto it = drafters_.find(sent.source);
  if (it == drafters_.end()) return AddTo("", "", sent.draft, pass);
  AddTo(it->second.name, it->second.node, sent.draft, pass);
}

void RequestTrace::AddLocal(const TracedDraft& draft, TracedPass* pass) const {
  AddTo(kLocalDrafter, verifier_, draft, pass);
}

void RequestTrace::AddTo(absl::string_view drafter,
                         absl::string_view node,
                         const TracedDraft& draft,
                         TracedPass* pass) const {
  size_t size = 0;
  for (const TracedRun& run : pass->drafts) size += run.tokens.size();
  if (size >= kMaxTracedDrafts) {
    ++pass->num_left_out;
    return;
  }
  std::vector<TracedRun>& runs = pass->drafts;
  if (runs.empty() || runs.back().drafter != drafter ||
      runs.back().node != node) {
    runs.push_back({std::string(drafter), std::string(node), {}});
  }
  runs.back().tokens.push_back(draft);
}

TracedTimes RequestTrace::TimesOf(const Commit& commit,
                                  const PassTimes& times) {
  TracedTimes traced;
  const absl::Time now = clock_->Now();
  traced.end = NotNegative(now - arrival_);
  traced.wait = NotNegative(times.wait);
  traced.verify = NotNegative(times.verify);
  absl::Duration back;
  if (commit.trace.has_value()) {
    const auto node = forwarded_.extract(commit.trace->num_received);
    // Those before have been overtaken.
    forwarded_.erase(forwarded_.begin(),
                     forwarded_.upper_bound(commit.trace->num_received));
    if (!node.empty()) {
      const Forwarded& last = node.mapped();
      const absl::Duration link =
          NotNegative(now - last.sent - commit.trace->held - traced.verify);
      back = link / 2;
      traced.drafting = last.drafting;
      traced.network = last.network + link;
      traced.proposal = NotNegative(last.came - arrival_);
    }
  }
  const absl::Duration on_its_clock = Tick(times);
  const absl::Duration clock_start =
      traced.end - back - traced.verify - on_its_clock;
  clock_start_ = std::min(clock_start_.value_or(clock_start), clock_start);
  // Before, the clock's start may have been taken for later than it was: then
  // the passes so far were told so much too late, and this one is, too.
  traced.start = std::max(NotNegative(*clock_start_ + on_its_clock), pass_end_);
  pass_end_ = traced.start + traced.verify;
  traced.end = std::max(traced.end, pass_end_);
  return traced;
}

}  // namespace specwire::coordinator
