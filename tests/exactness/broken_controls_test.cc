// SPDX-License-Identifier: Apache-2.0

// The test of distribution_test.cc sees the mistakes that systems make: each is
// planted into the code that serves and must fail it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/sampling/philox.h"
#include "common/sampling/pipeline.h"
#include "common/sampling/ratio.h"
#include "gtest/gtest.h"
#include "tests/exactness/exact_distribution.h"
#include "tests/exactness/toy_drafters.h"
#include "tests/exactness/toy_engine.h"
#include "tests/exactness/toy_serving.h"

namespace specwire {
namespace {

constexpr int kSamples = 130000;
// Where the bias is near .005.
constexpr int kManySamples = 520000;
constexpr int kVocab = 8;
// As if the whole grid ran.
constexpr int kNumTests = 864 * 10;

struct Mistake {
  bool inverted_ratio = false;
  bool correction_from_p = false;
  bool residual_without_token_only = false;
  bool untruncated_q_reported = false;
  // Drafter and verifier each count their calls, from the same seed.
  bool noise_by_calls = false;
  // Drafts that begin with an unlikely token come too late.
  bool late = false;
  // Tokens that are left of the drafter's distribution.
  int most_likely = 4;
};

double Word(uint64_t seed, NoiseStream stream, int position) {
  const uint32_t word = Philox4x32(
      {static_cast<uint32_t>(position), 0, static_cast<uint32_t>(stream), 0},
      seed)[0];
  return (word + 0.5) / 4294967296.0;
}

std::vector<double> ToDense(const TokenDistribution& p) {
  std::vector<double> dense(kVocab, 0.0);
  for (size_t i = 0; i < p.token_ids.size(); ++i) {
    dense[static_cast<size_t>(p.token_ids[i])] = p.probabilities[i];
  }
  return dense;
}

std::vector<double> ToDense(const DraftDistribution& q) {
  std::vector<double> dense(kVocab, 0.0);
  double sum = 0;
  for (const float value : q.probabilities) sum += static_cast<double>(value);
  for (size_t i = 0; i < q.token_ids.size(); ++i) {
    dense[static_cast<size_t>(q.token_ids[i])] =
        static_cast<double>(q.probabilities[i]) / sum;
  }
  return dense;
}

int32_t DrawFrom(const std::vector<double>& weights, double u) {
  double total = 0;
  for (const double weight : weights) total += weight;
  double sum = 0;
  int32_t last = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    last = static_cast<int32_t>(i);
    sum += weights[i];
    if (sum > u * total) break;
  }
  return last;
}

// The ratio rule as a test writes it, with something wrong in it.
class BrokenRule {
 public:
  BrokenRule(Mistake mistake, const SamplingParams& params, int prompt_length)
      : mistake_(mistake),
        pipeline_(params,
                  {.prompt_length = prompt_length,
                   .min_tokens = 0,
                   .end_token_ids = {}}) {}

  absl::StatusOr<std::vector<int32_t>> Decide(absl::Span<const float> logits,
                                              const verifier::StepRows& rows,
                                              uint64_t seed) {
    if (seed != seed_) num_calls_ = 0;
    seed_ = seed;
    std::vector<int32_t> tokens(rows.draft.size() + 1, 0);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const TokenHistory history = {.settled = rows.log,
                                    .run = rows.draft.first(i)};
      const std::vector<double> p = ToDense(
          pipeline_.Distribution(logits.subspan(i * kVocab, kVocab), history));
      const int position = history.position();
      if (i == rows.draft.size()) {
        tokens[i] = DrawFrom(p,
                             Word(seed,
                                  rows.draft.empty() ? NoiseStream::kPlain
                                                     : NoiseStream::kResidual,
                                  position));
        break;
      }
      tokens[i] = Judge(p, ToDense(rows.q[i]), rows.draft[i], position);
      if (tokens[i] != rows.draft[i]) break;
    }
    return tokens;
  }

 private:
  int32_t Judge(const std::vector<double>& p,
                const std::vector<double>& q,
                int32_t token,
                int position) {
    const auto x = static_cast<size_t>(token);
    const double u = mistake_.noise_by_calls
                         ? Word(seed_, NoiseStream::kDrafter, num_calls_++)
                         : Word(seed_, NoiseStream::kAcceptance, position);
    const double ratio = mistake_.inverted_ratio ? q[x] / p[x] : p[x] / q[x];
    if (u < ratio) return token;
    const double v = Word(seed_, NoiseStream::kResidual, position);
    if (mistake_.correction_from_p) return DrawFrom(p, v);
    std::vector<double> residual = p;
    for (size_t i = 0; i < residual.size(); ++i) {
      if (mistake_.residual_without_token_only && i != x) continue;
      residual[i] = std::max(0.0, p[i] - q[i]);
    }
    return DrawFrom(residual, v);
  }

  const Mistake mistake_;
  Pipeline pipeline_;
  uint64_t seed_ = 0;
  int num_calls_ = 0;
};

// A drafter as a test writes it: draws from its most likely tokens.
class BrokenDrafter final : public Drafter {
 public:
  BrokenDrafter(Mistake mistake, const ToyEngine* model)
      : mistake_(mistake), model_(model) {}

  const std::string& name() const override { return name_; }
  const std::string& vocabulary_fingerprint() const override { return none_; }
  const std::string& model_digest() const override { return none_; }
  int max_model_len() const override { return 0; }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& params) override {
    return std::make_unique<Sequence>(mistake_, model_, params);
  }

 private:
  class Sequence final : public DraftSequence {
   public:
    Sequence(Mistake mistake,
             const ToyEngine* model,
             const DraftSequenceParams& params)
        : mistake_(mistake),
          model_(model),
          seed_(static_cast<uint64_t>(params.sampling.seed)),
          pipeline_(params.sampling, params.context) {}

    absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                     const DraftLimits& limits) override {
      DraftRun run;
      std::vector<int32_t> text(path.begin(), path.end());
      for (int i = 0; i < limits.max_tokens; ++i) {
        const auto position = static_cast<int>(text.size());
        const TokenDistribution& full = pipeline_.Distribution(
            model_->RowAfter(text), {.settled = text, .run = {}});
        const DraftDistribution q =
            TruncateForDraft(full, mistake_.most_likely);
        const double u =
            Word(seed_,
                 NoiseStream::kDrafter,
                 mistake_.noise_by_calls ? num_calls_++ : position);
        text.push_back(DrawFrom(ToDense(q), u));
        run.tokens.push_back(text.back());
        run.q.push_back(mistake_.untruncated_q_reported
                            ? TruncateForDraft(full, kVocab)
                            : q);
      }
      return run;
    }

   private:
    const Mistake mistake_;
    const ToyEngine* const model_;
    const uint64_t seed_;
    Pipeline pipeline_;
    int num_calls_ = 0;
  };

  const Mistake mistake_;
  const ToyEngine* const model_;
  const std::string name_ = "broken";
  const std::string none_;
};

// Whether the test fails, and by how much, for the ratio rule with a mistake in
// it.
double Excess(const Mistake& mistake, int num_samples) {
  const ToyEngine target(kVocab, 1.2f, 90);
  const ToyEngine model(target, 0.5f, 91);
  ServingOptions options;
  options.rule = AcceptanceRule::kRatio;
  options.num_tokens = 4;
  BrokenDrafter drafter(mistake, &model);
  ToyEngine engine(target, 0.0f, 0);
  ToyServing serving(&engine, {&drafter}, options);
  BrokenRule rule(
      mistake, options.sampling, static_cast<int>(options.prompt.size()));
  serving.set_decide(
      [&rule](verifier::TargetSampler*,
              absl::Span<const float> logits,
              const verifier::StepRows& rows,
              uint64_t seed) { return rule.Decide(logits, rows, seed); });
  if (mistake.late) {
    serving.set_is_late([](const Proposal& proposal) {
      const std::vector<float>& q = proposal.q[0].probabilities;
      const auto& ids = proposal.q[0].token_ids;
      const auto at =
          std::find(ids.begin(), ids.end(), proposal.tokens[0]) - ids.begin();
      return q[static_cast<size_t>(at)] < 0.3f;
    });
  }
  TextTest test(target, options, kNumTests);
  for (int sample = 1; sample <= num_samples; ++sample) {
    const auto served = serving.Generate(static_cast<uint64_t>(sample));
    if (!served.ok()) {
      ADD_FAILURE() << served.status();
      return 0;
    }
    test.Count(served->tokens);
  }
  std::string where;
  const double excess = test.Excess(&where);
  // How far beyond the limit, in the test's report.
  testing::Test::RecordProperty("excess", std::to_string(excess));
  return excess;
}

TEST(BrokenControlsTest, WithoutAMistakeItPasses) {
  EXPECT_LT(Excess({}, kManySamples), 1);
}

TEST(BrokenControlsTest, InvertedRatio) {
  EXPECT_GT(Excess({.inverted_ratio = true}, kSamples), 1);
}

TEST(BrokenControlsTest, CorrectionDrawnFromP) {
  EXPECT_GT(Excess({.correction_from_p = true}, kSamples), 1);
}

TEST(BrokenControlsTest, ResidualThatRemovesOnlyTheDraftToken) {
  EXPECT_GT(Excess({.residual_without_token_only = true}, kSamples), 1);
}

TEST(BrokenControlsTest, UntruncatedQReported) {
  EXPECT_GT(Excess({.untruncated_q_reported = true}, kSamples), 1);
  // A small bias: all but the least likely token are left.
  EXPECT_GT(Excess({.untruncated_q_reported = true, .most_likely = kVocab - 1},
                   kManySamples),
            1);
}

TEST(BrokenControlsTest, NoiseInTheOrderOfCalls) {
  EXPECT_GT(Excess({.noise_by_calls = true}, kSamples), 1);
}

TEST(BrokenControlsTest, DraftsThatComeLateForSomeTokens) {
  EXPECT_GT(Excess({.late = true}, kSamples), 1);
}

}  // namespace
}  // namespace specwire
