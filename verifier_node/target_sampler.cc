// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/target_sampler.h"

#include <cstddef>

#include "absl/status/status.h"

namespace specwire::verifier {

TargetSampler::TargetSampler(AcceptanceRule rule,
                             const SamplingParams& params,
                             int32_t choice,
                             const SequenceContext& context)
    : rule_(rule),
      choice_(choice),
      coupled_(params, choice, context),
      pipeline_(params, context) {}

bool TargetSampler::IsPlainArgMax(int position, size_t count) const {
  for (size_t i = 0; i < count; ++i) {
    if (!coupled_.IsPlainArgMax(position + static_cast<int>(i))) return false;
  }
  return true;
}

absl::StatusOr<std::vector<int32_t>> TargetSampler::Decide(
    absl::Span<const float> logits, const StepRows& rows) {
  std::vector<int32_t> tokens(rows.draft.size() + 1, 0);
  const size_t vocab_size = logits.size() / tokens.size();
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = DecideRow(logits.subspan(i * vocab_size, vocab_size), rows, i);
    if (tokens[i] < 0) {
      return absl::InternalError(
          "the model's logits are not numbers, or min_tokens leaves no token");
    }
    // Rows behind a wrong draft token mean nothing.
    if (i < rows.draft.size() && tokens[i] != rows.draft[i]) break;
  }
  return tokens;
}

TracedRows TargetSampler::Trace(absl::Span<const float> logits,
                                const StepRows& rows,
                                absl::Span<const int32_t> tokens) {
  TracedRows traced;
  const size_t vocab_size = logits.size() / tokens.size();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const absl::Span<const float> row =
        logits.subspan(i * vocab_size, vocab_size);
    const TokenDistribution& p = pipeline_.Distribution(
        row, {.settled = rows.log, .run = rows.draft.first(i)});
    const auto read = [&](int32_t token) {
      PositionLogprobs logprobs;
      logprob_reader_.Read(row, token, /*top=*/0, &logprobs);
      return TargetProbability{.probability = ProbabilityOf(p, token),
                               .logprob = logprobs.chosen.logprob};
    };
    traced.choices.push_back(read(tokens[i]));
    if (i == rows.draft.size()) break;
    const bool equal = rows.draft[i] == tokens[i];
    traced.drafts.push_back(equal ? traced.choices.back()
                                  : read(rows.draft[i]));
    if (!equal) break;
  }
  return traced;
}

int32_t TargetSampler::DecideRow(absl::Span<const float> row,
                                 const StepRows& rows,
                                 size_t index) {
  const TokenHistory history = {.settled = rows.log,
                                .run = rows.draft.first(index)};
  if (rule_ == AcceptanceRule::kCoupled) return coupled_.Choose(row, history);
  const TokenDistribution& p = pipeline_.Distribution(row, history);
  if (p.token_ids.empty()) return -1;
  const DrawKey key = {.seed = static_cast<uint64_t>(pipeline_.params().seed),
                       .position = history.position(),
                       .choice = choice_};
  if (index < rows.draft.size()) {
    return VerifyDraft(p, rows.q[index], rows.draft[index], key).token;
  }
  return rows.draft.empty() ? DrawPlain(p, key) : DrawBonus(p, key);
}

}  // namespace specwire::verifier
