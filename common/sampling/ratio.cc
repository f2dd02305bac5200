// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/ratio.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/sampling/philox.h"

namespace specwire {
namespace {

constexpr double kSumTolerance = 1e-3;

template <class... Args>
absl::Status Invalid(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

// In (0, 1), never 0 or 1.
double Uniform(NoiseStream stream, const DrawKey& key) {
  const uint32_t word = Philox4x32({static_cast<uint32_t>(key.position),
                                    0,
                                    static_cast<uint32_t>(stream),
                                    static_cast<uint32_t>(key.choice)},
                                   key.seed)[0];
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}

// Index of the first weight at which the running sum exceeds u times the whole
// sum; the last positive one if rounding hides it. -1 if no weight is positive.
template <class WeightOf>
std::ptrdiff_t InverseCdf(size_t size, double u, WeightOf weight_of) {
  double total = 0;
  for (size_t i = 0; i < size; ++i) total += weight_of(i);
  double sum = 0;
  std::ptrdiff_t last = -1;
  for (size_t i = 0; i < size; ++i) {
    const double weight = weight_of(i);
    if (!(weight > 0)) continue;
    last = static_cast<std::ptrdiff_t>(i);
    sum += weight;
    if (sum > u * total) break;
  }
  return last;
}

double Sum(const DraftDistribution& q) {
  double sum = 0;
  for (const float probability : q.probabilities) {
    sum += static_cast<double>(probability);
  }
  return sum;
}

// Index of a token in ascending ids; their number if it is not there.
size_t IndexOf(absl::Span<const int32_t> ids, int32_t token) {
  const auto it = std::lower_bound(ids.begin(), ids.end(), token);
  return it != ids.end() && *it == token ? static_cast<size_t>(it - ids.begin())
                                         : ids.size();
}

double ProbabilityOf(const DraftDistribution& q, int32_t token, double sum) {
  const size_t index = IndexOf(q.token_ids, token);
  return index < q.token_ids.size()
             ? static_cast<double>(q.probabilities[index]) / sum
             : 0.0;
}

int32_t Draw(const TokenDistribution& p,
             NoiseStream stream,
             const DrawKey& key) {
  const std::ptrdiff_t index =
      InverseCdf(p.token_ids.size(), Uniform(stream, key), [&](size_t i) {
        return p.probabilities[i];
      });
  return index < 0 ? -1 : p.token_ids[static_cast<size_t>(index)];
}

// From the positive part of p - q, normalised.
int32_t DrawResidual(const TokenDistribution& p,
                     const DraftDistribution& q,
                     double q_sum,
                     const DrawKey& key) {
  std::vector<double> residual = p.probabilities;
  size_t j = 0;
  for (size_t i = 0; i < residual.size(); ++i) {
    while (j < q.token_ids.size() && q.token_ids[j] < p.token_ids[i]) ++j;
    if (j == q.token_ids.size()) break;
    if (q.token_ids[j] != p.token_ids[i]) continue;
    const double q_i = static_cast<double>(q.probabilities[j]) / q_sum;
    residual[i] = std::max(0.0, residual[i] - q_i);
  }
  const std::ptrdiff_t index = InverseCdf(
      residual.size(), Uniform(NoiseStream::kResidual, key), [&](size_t i) {
        return residual[i];
      });
  // Nothing is left only if p and q are equal but for rounding: then p it is.
  return index < 0 ? Draw(p, NoiseStream::kResidual, key)
                   : p.token_ids[static_cast<size_t>(index)];
}

}  // namespace

absl::Status ValidateDraft(const DraftDistribution& q,
                           int32_t token,
                           int vocab_size) {
  const size_t size = q.token_ids.size();
  if (size < 1 || size > static_cast<size_t>(kMaxDraftDistribution)) {
    return Invalid("q.token_ids: ",
                   size,
                   " of them, at least 1 and at most ",
                   kMaxDraftDistribution);
  }
  if (q.probabilities.size() != size) {
    return Invalid("q.probabilities: ",
                   q.probabilities.size(),
                   " of them, must be as many as q.token_ids, ",
                   size);
  }
  int32_t least = 0;
  for (size_t i = 0; i < size; ++i) {
    const int32_t id = q.token_ids[i];
    if (id < 0 || id >= vocab_size) {
      return Invalid(
          "q.token_ids: token id ", id, " is not in [0, ", vocab_size, ")");
    }
    if (id < least) {
      return Invalid(
          "q.token_ids: must ascend, but ", id, " stands behind ", least - 1);
    }
    least = id + 1;
    const float probability = q.probabilities[i];
    if (!(probability > 0 && probability <= 1)) {
      return Invalid("q.probabilities: each must be in (0, 1], got ",
                     probability);
    }
  }
  if (const double sum = Sum(q); std::abs(sum - 1) > kSumTolerance) {
    return Invalid("q.probabilities: must sum to 1 within ",
                   kSumTolerance,
                   ", sum is ",
                   sum);
  }
  if (IndexOf(q.token_ids, token) == size) {
    return Invalid("q.token_ids: the draft token ",
                   token,
                   " is not among them, so it was not drawn from q");
  }
  return absl::OkStatus();
}

double DraftProbability(const DraftDistribution& q, int32_t token) {
  return ProbabilityOf(q, token, Sum(q));
}

DraftDistribution TruncateForDraft(const TokenDistribution& distribution,
                                   int max_tokens) {
  const std::vector<double>& probabilities = distribution.probabilities;
  std::vector<size_t> kept(probabilities.size());
  std::iota(kept.begin(), kept.end(), size_t{0});
  if (const auto limit = static_cast<size_t>(max_tokens); limit < kept.size()) {
    std::nth_element(kept.begin(),
                     kept.begin() + max_tokens,
                     kept.end(),
                     [&probabilities](size_t a, size_t b) {
                       return probabilities[a] != probabilities[b]
                                  ? probabilities[a] > probabilities[b]
                                  : a < b;
                     });
    kept.resize(limit);
    std::sort(kept.begin(), kept.end());
  }
  double sum = 0;
  for (const size_t i : kept) sum += probabilities[i];
  DraftDistribution q;
  for (const size_t i : kept) {
    const float probability = static_cast<float>(probabilities[i] / sum);
    if (!(probability > 0)) continue;
    q.token_ids.push_back(distribution.token_ids[i]);
    q.probabilities.push_back(probability);
  }
  return q;
}

int32_t DrawDraft(const DraftDistribution& q, const DrawKey& key) {
  const std::ptrdiff_t index = InverseCdf(
      q.token_ids.size(), Uniform(NoiseStream::kDrafter, key), [&](size_t i) {
        return static_cast<double>(q.probabilities[i]);
      });
  return index < 0 ? -1 : q.token_ids[static_cast<size_t>(index)];
}

DraftVerdict VerifyDraft(const TokenDistribution& p,
                         const DraftDistribution& q,
                         int32_t token,
                         const DrawKey& key) {
  const double q_sum = Sum(q);
  const double u = Uniform(NoiseStream::kAcceptance, key);
  // u < p / q, without the division.
  if (u * ProbabilityOf(q, token, q_sum) < ProbabilityOf(p, token)) {
    return {.accepted = true, .token = token};
  }
  return {.accepted = false, .token = DrawResidual(p, q, q_sum, key)};
}

int32_t DrawBonus(const TokenDistribution& p, const DrawKey& key) {
  return Draw(p, NoiseStream::kResidual, key);
}

int32_t DrawPlain(const TokenDistribution& p, const DrawKey& key) {
  return Draw(p, NoiseStream::kPlain, key);
}

}  // namespace specwire
