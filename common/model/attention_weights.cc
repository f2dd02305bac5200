// SPDX-License-Identifier: Apache-2.0
#include "common/model/attention_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace specwire {
namespace {

// weights = softmax(scale query K^T) over the first weights.size() keys, those
// before `first` left out.
void FillRow(const float* query,
             absl::Span<const float> keys,
             size_t dim,
             float scale,
             size_t first,
             absl::Span<float> weights) {
  std::vector<double> scores(weights.size() - first);
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < dim; ++j) {
      scores[i] += double{query[j]} * double{keys[(first + i) * dim + j]};
    }
    scores[i] *= double{scale};
  }
  const double best = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - best);
  for (size_t i = 0; i < scores.size(); ++i) {
    weights[first + i] = static_cast<float>(scores[i] / sum);
  }
}

}  // namespace

void ReadAttention(const ModelConfig& config,
                   const Ops& ops,
                   const PassRun& run,
                   const at::Tensor& qkv) {
  const auto dim = static_cast<size_t>(config.head_dim);
  const auto rows = static_cast<size_t>(run.num_rows);
  const auto start = static_cast<size_t>(run.start);
  const size_t length = start + rows;
  const auto window = static_cast<size_t>(config.window(run.attention->layer));
  const int group = config.num_heads / config.num_kv_heads;
  std::vector<float>& weights = run.attention->weights;
  weights.assign(static_cast<size_t>(config.num_heads) * rows * length, 0);
  std::vector<float> keys(length * dim);
  auto row_weights = absl::MakeSpan(weights);
  for (int head = 0; head < config.num_heads; ++head) {
    if (head % group == 0) {
      ops.ReadKeys(
          run, run.attention->layer, head / group, absl::MakeSpan(keys));
    }
    for (size_t row = 0; row < rows; ++row) {
      const float* const query =
          qkv.data_ptr<float>() +
          (run.first_row + static_cast<int64_t>(row)) * qkv.stride(0) +
          static_cast<int64_t>(head) * config.head_dim;
      const size_t seen = start + row + 1;
      FillRow(query,
              keys,
              dim,
              config.attention_scale,
              window > 0 && window < seen ? seen - window : 0,
              row_weights.first(seen));
      row_weights.remove_prefix(length);
    }
  }
}

}  // namespace specwire
