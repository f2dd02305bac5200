// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_view.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/completion.h"
#include "cli/quoted.h"
#include "cli/table.h"

namespace specwire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kUnknown[] = "-";

std::string ProbabilityText(double probability) {
  // What is less is not nothing.
  return probability > 0 && probability < 5e-5
             ? absl::StrFormat("%.1e", probability)
             : absl::StrFormat("%.4f", probability);
}

std::string Milliseconds(int64_t microseconds) {
  return absl::StrFormat("%.2f ms", static_cast<double>(microseconds) / 1000);
}

std::string By(const v1::DraftTrace& run) {
  const std::string name = absl::CHexEscape(run.drafter());
  return run.node().empty()
             ? name
             : absl::StrCat(name, "@", absl::CHexEscape(run.node()));
}

// After the pipeline, and under the raw logits.
void AddTarget(bool known, const v1::TargetProbability& target, TableRow* row) {
  row->push_back(known ? ProbabilityText(target.probability()) : kUnknown);
  row->push_back(known ? ProbabilityText(std::exp(target.logprob()))
                       : kUnknown);
}

TableRow DraftCells(int position,
                    const std::string& by,
                    const v1::DraftTokenTrace& draft) {
  TableRow row = {absl::StrCat(position),
                  Quoted(draft.token_bytes()),
                  by,
                  std::string(OutcomeName(draft.outcome())),
                  draft.has_draft_probability()
                      ? ProbabilityText(draft.draft_probability())
                      : kUnknown};
  AddTarget(draft.has_target(), draft.target(), &row);
  return row;
}

void AddChoice(const v1::ChoiceTrace* choice, TableRow* row) {
  row->push_back(choice == nullptr ? kUnknown : Quoted(choice->token_bytes()));
  AddTarget(choice != nullptr && choice->has_target(),
            choice == nullptr ? v1::TargetProbability() : choice->target(),
            row);
}

bool IsCompared(const v1::DraftTokenTrace& draft) {
  return draft.outcome() == v1::DRAFT_OUTCOME_ACCEPTED ||
         draft.outcome() == v1::DRAFT_OUTCOME_REJECTED;
}

// In the order of positions: what was chosen beside what it was compared with,
// then, behind each position, what was proposed for it and not compared.
std::vector<TableRow> PassRows(const v1::PassTrace& pass) {
  std::map<int64_t, std::vector<TableRow>> by_position;
  std::vector<bool> shown(static_cast<size_t>(pass.choices_size()));
  const auto choice_at = [&](int64_t position) -> const v1::ChoiceTrace* {
    const int64_t index = position - pass.position();
    if (index < 0 || index >= pass.choices_size()) return nullptr;
    shown[static_cast<size_t>(index)] = true;
    return &pass.choices(static_cast<int>(index));
  };
  for (const v1::DraftTrace& run : pass.drafts()) {
    const std::string by = By(run);
    for (const v1::DraftTokenTrace& draft : run.tokens()) {
      TableRow row = DraftCells(draft.position(), by, draft);
      AddChoice(IsCompared(draft) ? choice_at(draft.position()) : nullptr,
                &row);
      std::vector<TableRow>& rows = by_position[draft.position()];
      rows.insert(IsCompared(draft) ? rows.begin() : rows.end(),
                  std::move(row));
    }
  }
  for (int i = 0; i < pass.choices_size(); ++i) {
    if (shown[static_cast<size_t>(i)]) continue;
    const int64_t position = int64_t{pass.position()} + i;
    TableRow row = {absl::StrCat(position)};
    row.resize(7, kUnknown);
    AddChoice(&pass.choices(i), &row);
    std::vector<TableRow>& rows = by_position[position];
    rows.insert(rows.begin(), std::move(row));
  }
  std::vector<TableRow> all = {{"POSITION",
                                "PROPOSED",
                                "BY",
                                "OUTCOME",
                                "P(DRAFT)",
                                "P(TARGET)",
                                "RAW",
                                "CHOSEN",
                                "P(CHOSEN)",
                                "RAW"}};
  for (auto& [position, rows] : by_position) {
    for (TableRow& row : rows) all.push_back(std::move(row));
  }
  return all;
}

std::string PassLine(size_t index, const v1::PassTrace& pass) {
  if (!pass.has_timings()) return "left at the end";
  const v1::PassTimings& times = pass.timings();
  std::string text = absl::StrCat("pass ",
                                  index + 1,
                                  " on ",
                                  absl::CHexEscape(pass.verifier()),
                                  ", at ",
                                  Milliseconds(times.start_us()),
                                  ": waited ",
                                  Milliseconds(times.wait_us()));
  if (times.has_proposal_us()) {
    absl::StrAppend(&text,
                    ", draft ",
                    Milliseconds(times.draft_us()),
                    ", network ",
                    Milliseconds(times.network_us()));
  }
  absl::StrAppend(&text, ", verify ", Milliseconds(times.verify_us()));
  return text;
}

Json TargetJson(bool known, const v1::TargetProbability& target) {
  if (!known) return nullptr;
  return {{"probability", target.probability()},
          {"logprob", JsonLogprob(target.logprob())}};
}

Json DraftsJson(const v1::PassTrace& pass) {
  Json drafts = Json::array();
  for (const v1::DraftTrace& run : pass.drafts()) {
    Json tokens = Json::array();
    for (const v1::DraftTokenTrace& draft : run.tokens()) {
      Json token = {{"position", draft.position()},
                    {"token_id", draft.token_id()},
                    {"text", draft.token_bytes()},
                    {"outcome", std::string(OutcomeName(draft.outcome()))},
                    {"draft_probability", nullptr},
                    {"target", TargetJson(draft.has_target(), draft.target())}};
      if (draft.has_draft_probability()) {
        token["draft_probability"] = draft.draft_probability();
      }
      tokens.push_back(std::move(token));
    }
    drafts.push_back({{"drafter", run.drafter()},
                      {"node", run.node()},
                      {"tokens", std::move(tokens)}});
  }
  return drafts;
}

Json TimingsJson(const v1::PassTrace& pass) {
  if (!pass.has_timings()) return nullptr;
  const v1::PassTimings& times = pass.timings();
  Json json = {{"start_us", times.start_us()},
               {"wait_us", times.wait_us()},
               {"draft_us", times.draft_us()},
               {"network_us", times.network_us()},
               {"verify_us", times.verify_us()},
               {"proposal_us", nullptr},
               {"end_us", times.end_us()}};
  if (times.has_proposal_us()) json["proposal_us"] = times.proposal_us();
  return json;
}

}  // namespace

absl::string_view OutcomeName(v1::DraftOutcome outcome) {
  switch (outcome) {
    case v1::DRAFT_OUTCOME_ACCEPTED:
      return "accepted";
    case v1::DRAFT_OUTCOME_REJECTED:
      return "rejected";
    case v1::DRAFT_OUTCOME_DISCARDED:
      return "discarded";
    case v1::DRAFT_OUTCOME_OVERLAPPED:
      return "overlapped";
    case v1::DRAFT_OUTCOME_STALE:
      return "stale";
    case v1::DRAFT_OUTCOME_TRIMMED:
      return "trimmed";
    case v1::DRAFT_OUTCOME_UNUSED:
      return "unused";
    default:
      return "unknown";
  }
}

std::string TraceText(const std::vector<v1::PassTrace>& trace) {
  std::string text;
  for (size_t i = 0; i < trace.size(); ++i) {
    const v1::PassTrace& pass = trace[i];
    const std::vector<TableRow> rows = PassRows(pass);
    if (rows.size() > 1) {
      absl::StrAppend(&text, PassLine(i, pass), "\n", TableText(rows));
    }
    if (pass.num_left_out() > 0) {
      absl::StrAppend(
          &text, "and ", pass.num_left_out(), " more draft tokens\n");
    }
  }
  if (text.empty()) return text;
  return absl::StrCat(
      text,
      "P(DRAFT): the drafter's estimate that the token is accepted; under the "
      "ratio rule what it was drawn with.\nP(TARGET): what the target draws "
      "the proposed token with, after the whole sampling pipeline, P(CHOSEN): "
      "the "
      "chosen one. RAW: the probability of each under the raw logits.\n");
}

Json TraceJson(const std::vector<v1::PassTrace>& trace) {
  Json json = Json::array();
  for (const v1::PassTrace& pass : trace) {
    Json choices = Json::array();
    for (const v1::ChoiceTrace& choice : pass.choices()) {
      choices.push_back(
          {{"token_id", choice.token_id()},
           {"text", choice.token_bytes()},
           {"origin",
            choice.origin() == v1::TOKEN_ORIGIN_DRAFT ? "draft" : "target"},
           {"target", TargetJson(choice.has_target(), choice.target())}});
    }
    json.push_back({{"position", pass.position()},
                    {"verifier", pass.verifier()},
                    {"drafts", DraftsJson(pass)},
                    {"choices", std::move(choices)},
                    {"timings", TimingsJson(pass)},
                    {"num_left_out", pass.num_left_out()}});
  }
  return json;
}

}  // namespace specwire::cli
