// SPDX-License-Identifier: Apache-2.0
#include "tests/exactness/toy_engine.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>

#include "absl/status/status.h"

namespace specwire {

class ToyEngine::Sequence final : public KvSequence {
 public:
  int length() const override { return static_cast<int>(tokens.size()); }
  void Truncate(int length) override {
    tokens.resize(static_cast<size_t>(length));
  }

  std::vector<int32_t> tokens;
};

ToyEngine::ToyEngine(int vocab_size, float spread, uint32_t seed) {
  Describe(vocab_size);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  for (float& logit : table_) logit = normal(random);
}

ToyEngine::ToyEngine(const ToyEngine& original, float noise, uint32_t seed) {
  Describe(original.vocab_size());
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  for (size_t i = 0; i < table_.size(); ++i) {
    table_[i] = original.table_[i] + noise * normal(random);
  }
}

ToyEngine::ToyEngine(const std::vector<float>& row) {
  Describe(static_cast<int>(row.size()));
  for (size_t i = 0; i < table_.size(); ++i) table_[i] = row[i % row.size()];
}

void ToyEngine::Describe(int vocab_size) {
  info_.name = "toy";
  info_.architecture = "toy";
  info_.engine = "toy";
  info_.model_digest = std::string(64, 'e');
  info_.vocab_size = vocab_size;
  info_.num_layers = 1;
  info_.max_model_len = kMaxModelLen;
  tokenizer_.kind = "gpt2";
  tokenizer_.pre = "smollm";
  for (int i = 0; i < vocab_size; ++i) {
    // One printable character for each token.
    tokenizer_.tokens.emplace_back(1, static_cast<char>('!' + i));
  }
  tokenizer_.types.assign(static_cast<size_t>(vocab_size),
                          static_cast<int32_t>(TokenType::kNormal));
  const auto size = static_cast<size_t>(vocab_size);
  table_.resize(size * size * size);
}

std::unique_ptr<KvSequence> ToyEngine::NewSequence() {
  return std::make_unique<Sequence>();
}

absl::Span<const float> ToyEngine::RowAfter(
    absl::Span<const int32_t> tokens) const {
  const auto size = static_cast<size_t>(info_.vocab_size);
  const auto last = static_cast<size_t>(tokens.back());
  const auto before =
      tokens.size() > 1 ? static_cast<size_t>(tokens[tokens.size() - 2]) : 0;
  return absl::MakeConstSpan(table_).subspan((before * size + last) * size,
                                             size);
}

absl::StatusOr<absl::Span<const float>> ToyEngine::Forward(
    absl::Span<const ForwardRun> runs) {
  logits_.clear();
  for (const ForwardRun& run : runs) {
    auto* const kv = static_cast<Sequence*>(run.kv);
    rows_computed_ += static_cast<int64_t>(run.tokens.size());
    const size_t first =
        run.tokens.size() - static_cast<size_t>(run.num_logits);
    for (size_t i = 0; i < run.tokens.size(); ++i) {
      kv->tokens.push_back(run.tokens[i]);
      if (i < first) continue;
      const absl::Span<const float> row = RowAfter(kv->tokens);
      if (run.best.empty()) {
        logits_.insert(logits_.end(), row.begin(), row.end());
      } else {
        run.best[i - first] = static_cast<int32_t>(
            std::max_element(row.begin(), row.end()) - row.begin());
      }
    }
  }
  return absl::MakeConstSpan(logits_);
}

}  // namespace specwire
