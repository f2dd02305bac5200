// SPDX-License-Identifier: Apache-2.0
#include "tests/exactness/exact_distribution.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace specwire {
namespace {

constexpr double kLevel = 1e-3;
constexpr double kLeastExpected = 8;

std::vector<double> Process(absl::Span<const float> row,
                            const ServingOptions& options,
                            absl::Span<const int32_t> tokens) {
  const SamplingParams& params = options.sampling;
  std::vector<double> logits(row.begin(), row.end());
  for (const LogitBias& entry : params.logit_bias) {
    logits[static_cast<size_t>(entry.token_id)] +=
        static_cast<double>(entry.bias);
  }
  if (tokens.size() <
      options.prompt.size() + static_cast<size_t>(options.min_tokens)) {
    for (const int32_t id : options.stop_token_ids) {
      logits[static_cast<size_t>(id)] =
          -std::numeric_limits<double>::infinity();
    }
  }
  const absl::Span<const int32_t> output =
      tokens.subspan(options.prompt.size());
  for (size_t id = 0; id < logits.size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    const auto count = std::count(output.begin(), output.end(), token);
    if (std::count(tokens.begin(), tokens.end(), token) > 0) {
      const auto penalty = static_cast<double>(params.repetition_penalty);
      logits[id] = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
    }
    logits[id] -= static_cast<double>(params.frequency_penalty) *
                  static_cast<double>(count);
    if (count > 0) {
      logits[id] -= static_cast<double>(params.presence_penalty);
    }
  }
  return logits;
}

}  // namespace

std::vector<double> ExactDistribution(const ToyEngine& target,
                                      const ServingOptions& options,
                                      absl::Span<const int32_t> tokens) {
  const SamplingParams& params = options.sampling;
  const std::vector<double> logits =
      Process(target.RowAfter(tokens), options, tokens);
  const double best = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights;
  for (const double logit : logits) {
    weights.push_back(
        std::exp((logit - best) / static_cast<double>(params.temperature)));
  }
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return weights[a] > weights[b];
  });
  std::erase_if(order, [&](size_t id) {
    return weights[id] < static_cast<double>(params.min_p) || weights[id] == 0;
  });
  if (params.top_k > 0) {
    order.resize(std::min(order.size(), static_cast<size_t>(params.top_k)));
  }
  double total = 0;
  for (const size_t id : order) total += weights[id];
  double reached = 0;
  size_t kept = 0;
  while (kept < order.size() &&
         (params.top_p >= 1 ||
          reached < static_cast<double>(params.top_p) * total)) {
    reached += weights[order[kept++]];
  }
  order.resize(kept);
  std::vector<double> p(weights.size(), 0.0);
  for (const size_t id : order) p[id] = weights[id] / reached;
  return p;
}

double Distance(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::abs(p[i] - q[i]);
  return sum / 2;
}

double NormalQuantile(double level) {
  double low = 0;
  double high = 10;
  for (int i = 0; i < 60; ++i) {
    const double z = (low + high) / 2;
    (std::erfc(z / std::sqrt(2.0)) / 2 > level ? low : high) = z;
  }
  return low;
}

double ChiSquareExcess(const std::vector<double>& counts,
                       const std::vector<double>& probabilities,
                       int num_tests) {
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  double statistic = 0;
  int degrees = -1;
  const auto add = [&](double seen, double expected) {
    if (expected <= 0) return;
    statistic += (seen - expected) * (seen - expected) / expected;
    ++degrees;
  };
  double rare_seen = 0;
  double rare_expected = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * total;
    if (expected == 0 && counts[i] > 0) {
      return std::numeric_limits<double>::infinity();
    }
    if (expected < kLeastExpected) {
      rare_seen += counts[i];
      rare_expected += expected;
    } else {
      add(counts[i], expected);
    }
  }
  add(rare_seen, rare_expected);
  if (degrees < 1) return 0;
  // Wilson and Hilferty's approximation.
  const double z = NormalQuantile(kLevel / num_tests);
  const double k = degrees;
  const double limit =
      k * std::pow(1 - 2 / (9 * k) + z * std::sqrt(2 / (9 * k)), 3);
  return statistic / limit;
}

TextTest::TextTest(const ToyEngine& target,
                   const ServingOptions& options,
                   int num_tests)
    : prompt_length_(options.prompt.size()),
      num_tokens_(static_cast<size_t>(options.num_tokens)),
      vocab_size_(static_cast<size_t>(target.vocab_size())),
      num_tests_(num_tests) {
  const auto add = [this](size_t first, size_t size) {
    size_t cells = 1;
    for (size_t i = 0; i < size; ++i) cells *= vocab_size_;
    tables_.push_back({absl::StrCat("tokens ", first, " to ", first + size),
                       first,
                       size,
                       std::vector<double>(cells, 0.0),
                       std::vector<double>(cells, 0.0)});
  };
  for (size_t i = 0; i < num_tokens_; ++i) add(i, 1);
  for (size_t i = 0; i + 1 < num_tokens_; ++i) add(i, 2);
  if (num_tokens_ >= 3) add(0, 3);
  std::vector<int32_t> tokens = options.prompt;
  Walk(target, options, 1, &tokens);
}

size_t TextTest::Cell(const Table& table,
                      absl::Span<const int32_t> text) const {
  size_t cell = 0;
  for (size_t i = 0; i < table.size; ++i) {
    cell = cell * vocab_size_ + static_cast<size_t>(text[table.first + i]);
  }
  return cell;
}

void TextTest::Walk(const ToyEngine& target,
                    const ServingOptions& options,
                    double probability,
                    std::vector<int32_t>* tokens) {
  if (tokens->size() == prompt_length_ + num_tokens_) {
    const auto text = absl::MakeConstSpan(*tokens).subspan(prompt_length_);
    for (Table& table : tables_) {
      table.probabilities[Cell(table, text)] += probability;
    }
    return;
  }
  const std::vector<double> p = ExactDistribution(target, options, *tokens);
  for (size_t id = 0; id < p.size(); ++id) {
    if (p[id] == 0) continue;
    tokens->push_back(static_cast<int32_t>(id));
    Walk(target, options, probability * p[id], tokens);
    tokens->pop_back();
  }
}

void TextTest::Count(absl::Span<const int32_t> text) {
  for (Table& table : tables_) ++table.counts[Cell(table, text)];
}

double TextTest::Excess(std::string* where) const {
  double worst = 0;
  for (const Table& table : tables_) {
    const double excess =
        ChiSquareExcess(table.counts, table.probabilities, num_tests_);
    if (excess >= worst) {
      worst = excess;
      *where = table.name;
    }
  }
  return worst;
}

}  // namespace specwire
