// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/suffix.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/common_length.h"

namespace specwire {
namespace {

// Beyond that a store helps nobody.
constexpr int64_t kMaxStoreTokens = int64_t{1} << 24;
// Tokens of a longer log that tell how good proposals are.
constexpr size_t kMaxLearnt = 64;
// Tokens of the prompt that are kept with what followed them.
constexpr size_t kKeptPrompt = SuffixTrie::kDepth;

std::optional<SuffixMatch> BestMatch(const SuffixTrie& trie,
                                     const SuffixTrie::Place& place,
                                     bool from_store) {
  const int depth = trie.LongestMatch(place);
  if (depth < 0) return std::nullopt;
  return SuffixMatch{.from_store = from_store,
                     .length = place.match_length,
                     .next = *trie.MostFrequent(place, depth)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<SuffixDrafter>> SuffixDrafter::Create(
    const SuffixOptions& options) {
  if (options.max_store_tokens < 0 ||
      options.max_store_tokens > kMaxStoreTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_store_tokens must be in [0, ",
                     kMaxStoreTokens,
                     "], got ",
                     options.max_store_tokens));
  }
  if (!(options.min_survival >= 0 && options.min_survival < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "min_survival must be in [0, 1), got ", options.min_survival));
  }
  return absl::WrapUnique(new SuffixDrafter(options));
}

std::unique_ptr<DraftSequence> SuffixDrafter::NewSequence(
    const DraftSequenceParams& params) {
  return NewSuffixSequence(params);
}

std::unique_ptr<SuffixSequence> SuffixDrafter::NewSuffixSequence(
    const DraftSequenceParams& params) {
  return std::make_unique<SuffixSequence>(this, params);
}

int64_t SuffixDrafter::num_store_tokens() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(store_.num_tokens());
}

SuffixSequence::SuffixSequence(SuffixDrafter* drafter,
                               const DraftSequenceParams& params)
    : drafter_(drafter),
      salt_(params.tenant_salt),
      prompt_length_(
          static_cast<size_t>(std::max(params.context.prompt_length, 0))),
      alone_(params.rule == AcceptanceRule::kRatio),
      learnt_{.sampled = params.sampling.temperature > 0} {}

SuffixSequence::~SuffixSequence() {
  if (alone_ || settled_ <= prompt_length_) return;
  const size_t begin = prompt_length_ - std::min(prompt_length_, kKeptPrompt);
  MutexLock lock(&drafter_->mutex_);
  drafter_->store_.Add(
      salt_, absl::MakeConstSpan(text_).subspan(begin, settled_ - begin));
}

absl::StatusOr<DraftRun> SuffixSequence::Propose(absl::Span<const int32_t> path,
                                                 const DraftLimits& limits) {
  DraftRun run = Look(path, limits);
  Expect(path, run.tokens);
  return run;
}

DraftRun SuffixSequence::Look(absl::Span<const int32_t> path,
                              const DraftLimits& limits) {
  Settle(TakeUp(path));
  DraftRun run;
  MutexLock lock(&drafter_->mutex_);
  const SuffixStore::Tenant* const tenant = FindTenant();
  Places places = places_;
  for (const int32_t token : path.subspan(settled_)) {
    trie_.Move(&places.own, token);
  }
  FindInStore(tenant, path.size(), &places.store);
  const float least =
      std::max(limits.min_survival, drafter_->options_.min_survival);
  float survival = 1;
  for (int i = 0; i < limits.max_tokens; ++i) {
    const std::optional<Guess> guess = BestGuess(places, tenant);
    if (!guess.has_value()) break;
    survival *= guess->chance;
    if (survival < least) break;
    run.tokens.push_back(guess->token);
    run.survival.push_back(survival);
    trie_.Move(&places.own, guess->token);
    if (tenant != nullptr) {
      tenant->newer.Move(&places.store.newer, guess->token);
      tenant->older.Move(&places.store.older, guess->token);
    }
  }
  return run;
}

const SuffixStore::Tenant* SuffixSequence::FindTenant() const {
  return alone_ ? nullptr : drafter_->store_.Find(salt_);
}

void SuffixSequence::Expect(absl::Span<const int32_t> path,
                            absl::Span<const int32_t> tokens) {
  Settle(TakeUp(path));
  text_.insert(text_.end(), tokens.begin(), tokens.end());
}

size_t SuffixSequence::TakeUp(absl::Span<const int32_t> path) {
  const size_t common = CommonLength(text_, path);
  bool has_news = common < path.size();
  if (common < settled_) {
    // Not a path that goes on with what it was; so all is counted anew.
    settled_ = 0;
    trie_ = SuffixTrie();
    places_ = {};
    has_news = true;
  }
  text_.resize(common);
  text_.insert(text_.end(),
               path.begin() + static_cast<std::ptrdiff_t>(common),
               path.end());
  if (has_news) return path.size();
  return std::max(settled_, path.size() - std::min(path.size(), kMaxTail));
}

void SuffixSequence::Settle(size_t end) {
  if (settled_ == end) return;
  // The lock is not held for long texts. Prompts show nothing about output.
  const size_t learnt = std::max({settled_,
                                  std::min(prompt_length_, end),
                                  end - std::min(end, kMaxLearnt)});
  for (; settled_ < learnt; ++settled_) {
    trie_.Add(&places_.own, text_[settled_]);
  }
  MutexLock lock(&drafter_->mutex_);
  const SuffixStore::Tenant* const tenant = FindTenant();
  FindInStore(tenant, settled_, &places_.store);
  for (; settled_ < end; ++settled_) {
    const int32_t token = text_[settled_];
    Learn(tenant, token);
    trie_.Add(&places_.own, token);
    if (tenant == nullptr) continue;
    tenant->newer.Move(&places_.store.newer, token);
    tenant->older.Move(&places_.store.older, token);
    places_.store.end = settled_ + 1;
  }
}

void SuffixSequence::FindInStore(const SuffixStore::Tenant* tenant,
                                 size_t end,
                                 StorePlaces* places) const {
  if (tenant == nullptr ||
      (places->version == tenant->version && places->end == end)) {
    return;
  }
  const auto text = absl::MakeConstSpan(text_).first(end);
  *places = {.version = tenant->version,
             .end = end,
             .newer = tenant->newer.Find(text),
             .older = tenant->older.Find(text)};
}

template <typename F>
void SuffixSequence::ForEachMatch(const Places& places,
                                  const SuffixStore::Tenant* tenant,
                                  F visit) const {
  if (const auto match = BestMatch(trie_, places.own, false)) visit(*match);
  if (tenant == nullptr) return;
  if (const auto match = BestMatch(tenant->newer, places.store.newer, true)) {
    visit(*match);
  }
  if (const auto match = BestMatch(tenant->older, places.store.older, true)) {
    visit(*match);
  }
}

void SuffixSequence::Learn(const SuffixStore::Tenant* tenant, int32_t token) {
  SuffixEstimates* const estimates = this->estimates();
  ForEachMatch(places_, tenant, [&](const SuffixMatch& match) {
    estimates->Learn(match, match.next.token == token, &learnt_);
  });
}

std::optional<SuffixSequence::Guess> SuffixSequence::BestGuess(
    const Places& places, const SuffixStore::Tenant* tenant) {
  const SuffixEstimates& estimates = *this->estimates();
  std::optional<Guess> best;
  ForEachMatch(places, tenant, [&](const SuffixMatch& match) {
    const float chance = estimates.Chance(match, learnt_);
    // At equal chances the sequence itself is nearer.
    if (best.has_value() && chance <= best->chance) return;
    best = {.token = match.next.token, .chance = chance};
  });
  return best;
}

}  // namespace specwire
