// SPDX-License-Identifier: Apache-2.0
#include "cli/score_view.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/completion.h"
#include "cli/logprobs_view.h"
#include "cli/quoted.h"

namespace specwire::cli {
namespace {

using Json = nlohmann::ordered_json;

// One character for each bit of surprisal, so many at most.
constexpr int kBarWidth = 24;

std::string Bar(double bits) {
  // Written so that infinity is the whole bar too.
  if (!(bits < kBarWidth)) return std::string(kBarWidth - 1, '#') + '>';
  return std::string(static_cast<size_t>(std::lround(bits)), '#');
}

std::string Line(const v1::ScoreResponse& score, int i) {
  const v1::PositionLogprobs& entry = score.logprobs(i);
  std::string probability = "-";
  std::string surprisal = "-";
  std::string bar;
  if (entry.has_chosen()) {
    const double logprob = static_cast<double>(entry.chosen().logprob());
    // No minus sign where the token is certain.
    const double bits = std::max(0.0, -logprob / std::log(2.0));
    probability = absl::StrFormat("%.6f", std::exp(logprob));
    surprisal = absl::StrFormat("%.2f", bits);
    bar = Bar(bits);
  }
  const std::string token =
      i < score.token_bytes_size() ? Quoted(score.token_bytes(i)) : "";
  std::string line = absl::StrFormat("%8d %8d %11s %7s  %-*s  %s",
                                     i,
                                     score.token_ids(i),
                                     probability,
                                     surprisal,
                                     kBarWidth,
                                     bar,
                                     token);
  if (entry.top_size() > 0) {
    absl::StrAppend(&line, "  candidates: ", CandidatesText(entry));
  }
  return line + '\n';
}

}  // namespace

Json ScoreJson(const v1::ScoreResponse& score, bool top) {
  Json json;
  json["token_ids"] = score.token_ids();
  Json& logprobs = json["logprobs"] = Json::array();
  for (const v1::PositionLogprobs& entry : score.logprobs()) {
    if (entry.has_chosen()) {
      logprobs.push_back(JsonLogprob(entry.chosen().logprob()));
    } else {
      logprobs.push_back(nullptr);
    }
  }
  if (top) {
    Json& tops = json["top"] = Json::array();
    for (const v1::PositionLogprobs& entry : score.logprobs()) {
      const Json position = LogprobJson(entry);
      tops.push_back(position.is_null() ? Json() : position["top"]);
    }
  }
  if (std::isfinite(score.perplexity())) {
    json["perplexity"] = score.perplexity();
  } else {
    json["perplexity"] = nullptr;
  }
  json["num_scored_tokens"] = score.num_scored_tokens();
  return json;
}

std::string ScoreText(const v1::ScoreResponse& score) {
  std::string text = absl::StrFormat("%8s %8s %11s %7s  %-*s  %s\n",
                                     "position",
                                     "id",
                                     "probability",
                                     "bits",
                                     kBarWidth,
                                     "surprisal",
                                     "token");
  const int count = std::min(score.token_ids_size(), score.logprobs_size());
  for (int i = 0; i < count; ++i) text += Line(score, i);
  absl::StrAppendFormat(&text,
                        "perplexity %.4f over %d scored tokens\n",
                        score.perplexity(),
                        score.num_scored_tokens());
  return text;
}

}  // namespace specwire::cli
