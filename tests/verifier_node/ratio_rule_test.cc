// SPDX-License-Identifier: Apache-2.0

// The ratio rule's part of VerifySequence, and the one place that decides.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/drafting/suffix.h"
#include "common/sampling/coupled.h"
#include "common/sampling/pipeline.h"
#include "common/sampling/ratio.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "verifier_node/target_sampler.h"
#include "verifier_node/verify_sequence.h"

namespace specwire::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = VerifySequence::Next::Kind;

constexpr int kVocabulary = 4;
constexpr absl::Time kNow = absl::UnixEpoch();
const std::vector<float> kFlat = {0, 0, 0, 0};

DraftDistribution Certain(int32_t token) { return {{token}, {1.0f}}; }

// A token is drawn from 0 and 3 alike, or from itself and 0.
DraftDistribution Likely(int32_t token) {
  return token == 0 ? DraftDistribution{{0, 3}, {0.5f, 0.5f}}
                    : DraftDistribution{{0, token}, {0.5f, 0.5f}};
}

VerifyParams Params() {
  VerifyParams params;
  params.tokens = {1, 2, 3};
  params.prompt_length = 3;
  params.max_tokens = 20;
  params.source = 1;
  params.decode_until = 1000;
  params.patience = absl::InfiniteDuration();
  params.rule = AcceptanceRule::kRatio;
  return params;
}

VerifySequence MakeSequence(const VerifyParams& params = Params()) {
  auto sequence = VerifySequence::Open(
      params, {.vocab_size = kVocabulary, .max_model_len = 64});
  EXPECT_TRUE(sequence.ok()) << sequence.status();
  return *std::move(sequence);
}

Proposal MakeRun(int position, int based_on, std::vector<int32_t> tokens) {
  Proposal proposal;
  proposal.source = 1;
  proposal.position = position;
  proposal.based_on = based_on;
  for (const int32_t token : tokens) proposal.q.push_back(Likely(token));
  proposal.tokens = std::move(tokens);
  return proposal;
}

std::vector<std::vector<int32_t>> StepIds(const VerifySequence& sequence) {
  std::vector<std::vector<int32_t>> ids;
  for (const DraftDistribution& q : sequence.step_q()) {
    ids.push_back(q.token_ids);
  }
  return ids;
}

std::string Refusal(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(RatioSequenceTest, EachDraftTokenGoesWithItsDistribution) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {1, 2, 3})).ok());
  EXPECT_THAT(sequence.BeginStep(2), ElementsAre(1, 2));
  EXPECT_THAT(StepIds(sequence),
              ElementsAre(ElementsAre(0, 1), ElementsAre(0, 2)));
  // The bonus token is the one that was proposed next: its place is filled.
  sequence.FinishStep(std::vector<int32_t>{1, 2, 3}, kNow);
  EXPECT_THAT(sequence.pending(), IsEmpty());
  EXPECT_EQ(sequence.counters().overlapped, 1);

  // Overlap with the log leaves the rest with its own.
  ASSERT_TRUE(sequence.OnProposal(MakeRun(5, 5, {3, 2, 1})).ok());
  EXPECT_THAT(sequence.BeginStep(8), ElementsAre(2, 1));
  EXPECT_THAT(StepIds(sequence),
              ElementsAre(ElementsAre(0, 2), ElementsAre(0, 1)));
  // A rejection drops what lies behind.
  sequence.FinishStep(std::vector<int32_t>{0, 0, 0}, kNow);
  EXPECT_THAT(sequence.pending(), IsEmpty());
  EXPECT_THAT(StepIds(sequence), IsEmpty());
}

TEST(RatioSequenceTest, AReplacedTailTakesItsDistributionsAlong) {
  VerifySequence sequence = MakeSequence();
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {1, 2, 3})).ok());
  ASSERT_TRUE(sequence.OnProposal(MakeRun(4, 3, {3, 1})).ok());
  EXPECT_THAT(sequence.BeginStep(8), ElementsAre(1, 3, 1));
  EXPECT_THAT(
      StepIds(sequence),
      ElementsAre(ElementsAre(0, 1), ElementsAre(0, 3), ElementsAre(0, 1)));
}

TEST(RatioSequenceTest, LimitsCutTokensAndDistributionsAlike) {
  VerifyParams params = Params();
  params.max_tokens = 3;
  VerifySequence sequence = MakeSequence(params);
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {1, 2, 3, 1})).ok());
  EXPECT_EQ(sequence.counters().trimmed, 2);
  EXPECT_THAT(sequence.BeginStep(8), ElementsAre(1, 2));
  EXPECT_EQ(sequence.step_q().size(), 2u);
}

TEST(RatioSequenceTest, MalformedDistributionsAreNamed) {
  VerifySequence sequence = MakeSequence();
  const auto refusal = [&](const std::function<void(Proposal*)>& spoil) {
    Proposal proposal = MakeRun(3, 3, {1, 2});
    spoil(&proposal);
    return Refusal(sequence.OnProposal(proposal));
  };
  EXPECT_THAT(refusal([](Proposal* p) { p->q.pop_back(); }),
              HasSubstr("proposal.q must have 2 entries"));
  EXPECT_THAT(refusal([](Proposal* p) { p->q.clear(); }),
              HasSubstr("proposal.q must have 2 entries"));
  EXPECT_THAT(refusal([](Proposal* p) {
                p->q[1].token_ids = {0, 4};
              }),
              HasSubstr("proposal.q[1]: q.token_ids: token id 4"));
  EXPECT_THAT(refusal([](Proposal* p) {
                p->q[1].token_ids = {2, 2};
              }),
              HasSubstr("must ascend"));
  EXPECT_THAT(refusal([](Proposal* p) { p->q[0].probabilities[0] = -1; }),
              HasSubstr("in (0, 1]"));
  EXPECT_THAT(refusal([](Proposal* p) {
                p->q[0].probabilities[0] =
                    std::numeric_limits<float>::quiet_NaN();
              }),
              HasSubstr("in (0, 1]"));
  EXPECT_THAT(refusal([](Proposal* p) { p->q[0].probabilities[0] = 0.9f; }),
              HasSubstr("sum to 1"));
  EXPECT_THAT(refusal([](Proposal* p) { p->q[0] = Certain(3); }),
              HasSubstr("the draft token 1 is not among them"));
  // It is still as it was.
  EXPECT_THAT(sequence.pending(), IsEmpty());
  EXPECT_EQ(sequence.NextAt(kNow).kind, Kind::kWait);
}

TEST(RatioSequenceTest, TheCoupledRuleTakesNoDistributions) {
  VerifyParams params = Params();
  params.rule = AcceptanceRule::kCoupled;
  VerifySequence sequence = MakeSequence(params);
  EXPECT_THAT(Refusal(sequence.OnProposal(MakeRun(3, 3, {1}))),
              HasSubstr("proposal.q must have 0 entries"));
}

TEST(RatioSequenceTest, PatienceIsInfiniteOrZero) {
  VerifyParams params = Params();
  params.patience = absl::Milliseconds(5);
  EXPECT_THAT(
      Refusal(VerifySequence::Open(
                  params, {.vocab_size = kVocabulary, .max_model_len = 64})
                  .status()),
      HasSubstr("lock-step"));
  VerifySequence sequence = MakeSequence();
  VerifyTune tune;
  tune.patience = absl::Milliseconds(5);
  EXPECT_THAT(Refusal(sequence.OnTune(tune)), HasSubstr("lock-step"));
  // However late it is, it waits.
  EXPECT_EQ(sequence.NextAt(kNow + absl::Hours(1)).kind, Kind::kWait);
}

TEST(RatioSequenceTest, WhatComesOutsideOfLockStepIsStale) {
  VerifySequence sequence = MakeSequence();
  VerifyTune tune;
  tune.patience = absl::ZeroDuration();
  ASSERT_TRUE(sequence.OnTune(tune).ok());
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {1, 2})).ok());
  EXPECT_THAT(sequence.pending(), IsEmpty());
  EXPECT_EQ(sequence.counters().stale, 2);
  EXPECT_EQ(sequence.NextAt(kNow).kind, Kind::kRun);
  tune.patience = absl::InfiniteDuration();
  ASSERT_TRUE(sequence.OnTune(tune).ok());
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {1, 2})).ok());
  EXPECT_THAT(sequence.pending(), ElementsAre(1, 2));
}

// --- Local drafts ---

SamplingParams Sampling(float temperature, int64_t seed = 7) {
  SamplingParams params;
  params.temperature = temperature;
  params.seed = seed;
  return params;
}

VerifyParams LocalParams() {
  VerifyParams params = Params();
  params.patience = absl::ZeroDuration();
  params.local_run_length = 4;
  return params;
}

TEST(RatioLocalDraftTest, EachTokenWasCertainAndAllAreVerified) {
  VerifySequence sequence = MakeSequence(LocalParams());
  sequence.SetLocalDraft({.tokens = {1, 2}, .survival = {0.01f, 0.01f}});
  EXPECT_TRUE(sequence.lock_step());
  EXPECT_EQ(sequence.NextAt(kNow).kind, Kind::kRun);
  EXPECT_THAT(sequence.BeginStep(8), ElementsAre(1, 2));
  EXPECT_THAT(StepIds(sequence), ElementsAre(ElementsAre(1), ElementsAre(2)));
  EXPECT_THAT(sequence.step_q()[0].probabilities, ElementsAre(1.0f));
  EXPECT_TRUE(sequence.FinishStep(std::vector<int32_t>{1, 2, 3}, kNow).local);
  EXPECT_EQ(sequence.NextAt(kNow).kind, Kind::kRun);
}

TEST(RatioLocalDraftTest, ProposalsAreStaleAndPatienceStaysZero) {
  VerifySequence sequence = MakeSequence(LocalParams());
  ASSERT_TRUE(sequence.OnProposal(MakeRun(3, 3, {1, 2})).ok());
  EXPECT_THAT(sequence.pending(), IsEmpty());
  EXPECT_EQ(sequence.counters().stale, 2);
  VerifyTune tune;
  tune.patience = absl::InfiniteDuration();
  EXPECT_THAT(Refusal(sequence.OnTune(tune)),
              HasSubstr("patience must be 0 under the ratio rule"));
}

// Texts of a Markov chain over three tokens, by the ratio rule with drafts that
// a SuffixDrafter looks up; the chance of each text is known.
class RatioLookupTest : public testing::Test {
 protected:
  static constexpr int kSize = 3;
  static constexpr int kTokens = 5;
  static constexpr int kSamples = 40000;
  // What to do with the draft for a position that the key names.
  using Filter =
      std::function<void(const DrawKey&, absl::Span<const float>, DraftRun*)>;

  RatioLookupTest() : drafter_(*SuffixDrafter::Create({})) {}

  static std::vector<float> Row(int32_t last) {
    const std::vector<std::vector<float>> rows = {
        {0.6f, 0.3f, 0.1f}, {0.2f, 0.2f, 0.6f}, {0.5f, 0.4f, 0.1f}};
    std::vector<float> logits = rows[static_cast<size_t>(last)];
    for (float& logit : logits) logit = std::log(logit);
    return logits;
  }

  std::vector<int32_t> Generate(int64_t seed, const Filter& filter) {
    VerifyParams params = LocalParams();
    params.tokens = kPrompt;
    params.prompt_length = static_cast<int>(kPrompt.size());
    params.max_tokens = kTokens;
    const SequenceContext context = {.prompt_length = params.prompt_length,
                                     .min_tokens = 0,
                                     .end_token_ids = {}};
    const SamplingParams sampling = Sampling(1, seed);
    VerifySequence sequence = *VerifySequence::Open(
        params, {.vocab_size = kSize, .max_model_len = 64});
    TargetSampler sampler(AcceptanceRule::kRatio, sampling, 0, context);
    DraftSequenceParams lookup_params;
    lookup_params.sampling = sampling;
    lookup_params.context = context;
    lookup_params.rule = AcceptanceRule::kRatio;
    const auto lookup = drafter_->NewSuffixSequence(lookup_params);
    while (!sequence.done()) {
      const int length = static_cast<int>(sequence.log().size());
      DraftRun draft = lookup->Look(
          sequence.log(),
          {.max_tokens = std::max(1, sequence.max_local_tokens())});
      filter({.seed = static_cast<uint64_t>(seed), .position = length},
             Row(sequence.log().back()),
             &draft);
      sequence.SetLocalDraft(std::move(draft));
      const auto rows = sequence.BeginStep(8);
      num_drafted_ += static_cast<int>(rows.size());
      std::vector<float> logits = Row(sequence.log().back());
      for (const int32_t token : rows) {
        const std::vector<float> row = Row(token);
        logits.insert(logits.end(), row.begin(), row.end());
      }
      const auto target =
          sampler.Decide(logits, {sequence.log(), rows, sequence.step_q()});
      EXPECT_TRUE(target.ok());
      num_accepted_ += sequence.FinishStep(*target, kNow).num_accepted;
    }
    return {sequence.log().begin() + params.prompt_length,
            sequence.log().end()};
  }

  // How many standard deviations Pearson's chi-square of the texts is above its
  // mean.
  double Excess(const Filter& filter) {
    constexpr int kTexts = 243;
    std::vector<double> counts(kTexts, 0);
    for (int64_t seed = 0; seed < kSamples; ++seed) {
      // What the same noise gave before must not show in the drafts.
      Generate(seed, filter);
      int index = 0;
      for (const int32_t token : Generate(seed, filter)) {
        index = index * kSize + token;
      }
      counts[static_cast<size_t>(index)] += 1;
    }
    double sum = 0;
    for (int text = 0; text < kTexts; ++text) {
      double expected = kSamples;
      int32_t last = kPrompt.back();
      for (int unit = kTexts / kSize; unit > 0; unit /= kSize) {
        const int32_t token = text / unit % kSize;
        expected *= std::exp(Row(last)[static_cast<size_t>(token)]);
        last = token;
      }
      const double off = counts[static_cast<size_t>(text)] - expected;
      sum += off * off / expected;
    }
    const double freedom = kTexts - 1;
    return (sum - freedom) / std::sqrt(2 * freedom);
  }

  const std::vector<int32_t> kPrompt = {0, 0, 1, 2, 0, 1, 2, 0, 0, 2, 0};
  const std::unique_ptr<SuffixDrafter> drafter_;
  int64_t num_drafted_ = 0;
  int64_t num_accepted_ = 0;
};

TEST_F(RatioLookupTest, TextsAreDistributedAsTheTargetsAre) {
  EXPECT_LT(Excess([](const auto&, const auto&, DraftRun*) {}), 4);
  EXPECT_GT(num_accepted_, kSamples);
  EXPECT_GT(num_drafted_, num_accepted_);
}

TEST_F(RatioLookupTest, ADraftThatKnowsWhatIsDrawnWouldShow) {
  // A planted mistake: no draft where a plain draw gives the same token.
  EXPECT_GT(
      Excess(
          [](const DrawKey& key, absl::Span<const float> row, DraftRun* draft) {
            TokenDistribution p;
            for (int32_t token = 0; token < kSize; ++token) {
              p.token_ids.push_back(token);
              p.probabilities.push_back(
                  std::exp(row[static_cast<size_t>(token)]));
            }
            if (!draft->tokens.empty() &&
                DrawPlain(p, key) == draft->tokens.front()) {
              *draft = {};
            }
          }),
      20);
}

// --- TargetSampler ---

std::vector<float> Rows(const std::vector<std::vector<float>>& rows) {
  std::vector<float> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

TEST(TargetSamplerTest, CoupledIsTheTargetsOwnChoice) {
  TargetSampler sampler(AcceptanceRule::kCoupled, Sampling(1), 0, {});
  CoupledSampler own(Sampling(1), 0);
  const std::vector<int32_t> log = {1, 2};
  const int32_t right = own.Choose(kFlat, {.settled = log, .run = {}});
  const std::vector<int32_t> draft = {right};
  const auto tokens = sampler.Decide(Rows({kFlat, kFlat}),
                                     {.log = log, .draft = draft, .q = {}});
  ASSERT_TRUE(tokens.ok());
  EXPECT_THAT(
      *tokens,
      ElementsAre(right, own.Choose(kFlat, {.settled = log, .run = draft})));
}

TEST(TargetSamplerTest, RatioAcceptsWhatTheTargetLikesMoreThanTheDrafter) {
  // p(1) = .25 everywhere; q(1) is less, so it is always accepted.
  const std::vector<DraftDistribution> q = {{{0, 1}, {0.8f, 0.2f}}};
  const std::vector<int32_t> log = {1};
  const std::vector<int32_t> draft = {1};
  for (int64_t seed = 0; seed < 200; ++seed) {
    TargetSampler sampler(AcceptanceRule::kRatio, Sampling(1, seed), 0, {});
    const auto tokens = sampler.Decide(Rows({kFlat, kFlat}), {log, draft, q});
    ASSERT_TRUE(tokens.ok());
    EXPECT_EQ(tokens->front(), 1);
  }
}

TEST(TargetSamplerTest, RatioCorrectsFromTheResidual) {
  // p is flat, q all on token 2: accepted once in four times, and never again
  // drawn where it was rejected.
  const std::vector<DraftDistribution> q = {Certain(2)};
  const std::vector<int32_t> log = {1};
  const std::vector<int32_t> draft = {2};
  std::vector<int> counts(kVocabulary, 0);
  for (int64_t seed = 0; seed < 4000; ++seed) {
    TargetSampler sampler(AcceptanceRule::kRatio, Sampling(1, seed), 0, {});
    const auto tokens = sampler.Decide(Rows({kFlat, kFlat}), {log, draft, q});
    ASSERT_TRUE(tokens.ok());
    ++counts[static_cast<size_t>(tokens->front())];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 140);
}

TEST(TargetSamplerTest, RatioIsTheSameForTheSameStep) {
  // What a lost verifier decided, its successor decides again.
  const std::vector<DraftDistribution> q = {Likely(1), Likely(2)};
  const std::vector<int32_t> log = {3, 3};
  const std::vector<int32_t> draft = {1, 2};
  for (int64_t seed = 0; seed < 100; ++seed) {
    TargetSampler first(AcceptanceRule::kRatio, Sampling(1, seed), 0, {});
    TargetSampler second(AcceptanceRule::kRatio, Sampling(1, seed), 0, {});
    const std::vector<float> rows = Rows({kFlat, kFlat, kFlat});
    EXPECT_EQ(*first.Decide(rows, {log, draft, q}),
              *second.Decide(rows, {log, draft, q}));
  }
}

TEST(TargetSamplerTest, GreedyIsTheArgMaxUnderEitherRule) {
  const std::vector<float> row = {0, 3, 1, 3};
  const std::vector<int32_t> log = {2};
  for (const auto rule : {AcceptanceRule::kCoupled, AcceptanceRule::kRatio}) {
    TargetSampler sampler(rule, Sampling(0), 0, {});
    EXPECT_TRUE(sampler.IsPlainArgMax(1, 3));
    for (int32_t token = 0; token < kVocabulary; ++token) {
      const std::vector<int32_t> draft = {token};
      const std::vector<DraftDistribution> q = {Likely(token)};
      const auto tokens = sampler.Decide(Rows({row, row}), {log, draft, q});
      ASSERT_TRUE(tokens.ok());
      EXPECT_EQ(tokens->front(), 1);
    }
  }
  SamplingParams biased = Sampling(0);
  biased.logit_bias = {{.token_id = 3, .bias = 1}};
  TargetSampler sampler(AcceptanceRule::kRatio, biased, 0, {});
  EXPECT_FALSE(sampler.IsPlainArgMax(1, 1));
  EXPECT_THAT(*sampler.Decide(row, {log, {}, {}}), ElementsAre(3));
}

TEST(TargetSamplerTest, RowsSeeTheDraftTokensBeforeThem) {
  // Token 1 can only be drawn once, by a presence penalty that ends it.
  SamplingParams params = Sampling(0);
  params.presence_penalty = 2;
  const std::vector<float> row = {0, 1, -5, -5};
  const std::vector<int32_t> log = {3};
  const std::vector<int32_t> draft = {1, 0};
  const std::vector<DraftDistribution> q = {Certain(1), Certain(0)};
  for (const auto rule : {AcceptanceRule::kCoupled, AcceptanceRule::kRatio}) {
    TargetSampler sampler(
        rule,
        params,
        0,
        {.prompt_length = 1, .min_tokens = 0, .end_token_ids = {}});
    EXPECT_THAT(*sampler.Decide(Rows({row, row, row}), {log, draft, q}),
                ElementsAre(1, 0, 1));
  }
}

TEST(TargetSamplerTest, LogitsThatAreNotNumbersAreAnError) {
  const std::vector<float> row(kVocabulary,
                               std::numeric_limits<float>::quiet_NaN());
  const std::vector<int32_t> log = {3};
  for (const auto rule : {AcceptanceRule::kCoupled, AcceptanceRule::kRatio}) {
    TargetSampler sampler(rule, Sampling(1), 0, {});
    EXPECT_EQ(sampler.Decide(row, {log, {}, {}}).status().code(),
              absl::StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace specwire::verifier
