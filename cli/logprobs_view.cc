// SPDX-License-Identifier: Apache-2.0
#include "cli/logprobs_view.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/quoted.h"
#include "cli/table.h"

namespace specwire::cli {
namespace {

constexpr char kUnknown[] = "-";

std::string Probability(const v1::TokenLogprob& token) {
  return absl::StrFormat("%.6f",
                         std::exp(static_cast<double>(token.logprob())));
}

// The entries as a table, from `position` on. `pieces`: the text of each token,
// or empty where nobody tells that.
std::string Table(size_t position,
                  const std::vector<v1::PositionLogprobs>& entries,
                  const std::vector<std::string>& pieces) {
  const bool has_candidates =
      std::any_of(entries.begin(), entries.end(), [](const auto& entry) {
        return entry.top_size() > 0;
      });
  TableRow head = {"POSITION", "ID", "LOGPROB", "PROBABILITY"};
  if (!pieces.empty()) head.emplace_back("TEXT");
  if (has_candidates) head.emplace_back("CANDIDATES (ID PROBABILITY)");
  std::vector<TableRow> rows = {std::move(head)};
  for (size_t i = 0; i < entries.size(); ++i) {
    const v1::PositionLogprobs& entry = entries[i];
    TableRow row = {absl::StrCat(position + i)};
    if (entry.has_chosen()) {
      row.push_back(absl::StrCat(entry.chosen().token_id()));
      row.push_back(absl::StrFormat("%.4f", entry.chosen().logprob()));
      row.push_back(Probability(entry.chosen()));
    } else {
      row.insert(row.end(), 3, kUnknown);
    }
    if (!pieces.empty()) {
      row.push_back(i < pieces.size() ? Quoted(pieces[i]) : kUnknown);
    }
    if (has_candidates) row.push_back(CandidatesText(entry));
    rows.push_back(std::move(row));
  }
  return TableText(rows);
}

size_t PromptSize(const Completion& completion) {
  return static_cast<size_t>(completion.started.prompt_token_ids_size());
}

}  // namespace

std::string CandidatesText(const v1::PositionLogprobs& entry) {
  std::string text;
  for (const v1::TokenLogprob& candidate : entry.top()) {
    absl::StrAppend(&text,
                    text.empty() ? "" : ", ",
                    candidate.token_id(),
                    " ",
                    Probability(candidate));
  }
  return text;
}

std::string PromptLogprobsText(const Completion& completion) {
  if (completion.prompt_logprobs.empty()) return "";
  return absl::StrCat("log-probabilities of the prompt\n",
                      Table(0, completion.prompt_logprobs, {}));
}

std::string LogprobsText(const Completion& completion, const Choice& choice) {
  if (choice.logprobs.empty()) return "";
  return absl::StrCat(
      "log-probabilities of the completion\n",
      Table(PromptSize(completion), choice.logprobs, choice.pieces));
}

}  // namespace specwire::cli
