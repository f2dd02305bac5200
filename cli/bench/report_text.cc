// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/bench/report.h"
#include "cli/table.h"
#include "common/text/printable.h"

namespace specwire::cli::bench {
namespace {

std::string Number(double value, int digits = 1) {
  return absl::StrFormat("%.*f", digits, value);
}

std::string Percent(double share) {
  return absl::StrFormat("%.0f %%", 100 * share);
}

std::string NumberOrDash(const std::optional<double>& value) {
  return value ? Number(*value, 2) : "-";
}

std::string LoopText(const Options& options) {
  if (!options.rate) {
    return absl::StrCat("closed loop, concurrency ", options.num_workers());
  }
  return absl::StrFormat(
      "open loop, %g arrivals/s, burstiness %g, at most %d in flight",
      *options.rate,
      options.burstiness.value_or(1),
      options.max_in_flight());
}

std::string HeadText(const Report& report,
                     const RunResult& run,
                     const Options& options) {
  std::string text =
      absl::StrFormat("%s, %s; at most %d tokens, temperature %g%s\n",
                      options.dataset,
                      LoopText(options),
                      options.max_tokens,
                      options.temperature,
                      options.ignore_eos ? ", EOS ignored" : "");
  if (!report.model.empty()) {
    absl::StrAppend(&text,
                    "model ",
                    Printable(report.model),
                    " ",
                    Printable(report.model_digest.substr(0, 12)));
    for (const auto& [_, figures] : report.modes) {
      if (!figures.speculation.drafter().empty()) {
        absl::StrAppend(
            &text, ", drafter ", Printable(figures.speculation.drafter()));
      }
    }
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(
      &text, run.num_warmup, " warm-up requests a mode, not counted\n");
  if (report.synthetic) {
    absl::StrAppend(&text, "SYNTHETIC: tokens and times are made up\n");
  }
  return text;
}

std::string ModesText(const Report& report) {
  std::vector<TableRow> rows = {{"MODE",
                                 "COMPLETED",
                                 "FAILED",
                                 "TOKENS",
                                 "TOKENS/S",
                                 "REQUESTS/S",
                                 "TOKENS/S A STREAM",
                                 "TOKENS/PASS",
                                 "ACCEPTED",
                                 "4-GRAMS REPEATED",
                                 "EXPECTED",
                                 "MEASURED"}};
  for (const auto& [mode, figures] : report.modes) {
    rows.push_back({std::string(ModeName(mode)),
                    absl::StrCat(figures.num_completed),
                    absl::StrCat(figures.num_failed),
                    absl::StrCat(figures.output_tokens),
                    Number(figures.output_tokens_per_second()),
                    Number(figures.requests_per_second(), 2),
                    Number(figures.stream_tokens_per_second()),
                    Number(figures.tokens_per_pass(), 2),
                    mode == Mode::kPlain
                        ? "-"
                        : Percent(figures.speculation.draft_acceptance_rate()),
                    Percent(figures.repeat_rate),
                    NumberOrDash(figures.predicted_speedup),
                    NumberOrDash(figures.measured_speedup)});
  }
  return TableText(rows);
}

std::string LatencyText(const Report& report) {
  std::vector<TableRow> rows = {
      {"MILLISECONDS", "MODE", "P50", "P90", "P99", "MEAN"}};
  const auto add = [&](const std::string& name, Summary Figures::*field) {
    for (const auto& [mode, figures] : report.modes) {
      const Summary& summary = figures.*field;
      const auto number = [&](double value) {
        return summary.count == 0 ? std::string("-") : Number(value);
      };
      rows.push_back({name,
                      std::string(ModeName(mode)),
                      number(summary.p50),
                      number(summary.p90),
                      number(summary.p99),
                      number(summary.mean)});
    }
  };
  add("time to first token", &Figures::ttft_ms);
  add("time per further token", &Figures::itl_ms);
  add("gap between messages", &Figures::chunk_gap_ms);
  add("end to end", &Figures::e2e_ms);
  add("queue", &Figures::queue_ms);
  return TableText(rows);
}

std::string CategoriesText(const Report& report) {
  std::vector<TableRow> rows = {{"CATEGORY",
                                 "MODE",
                                 "COMPLETED",
                                 "TOKENS/S A STREAM",
                                 "FIRST TOKEN P50",
                                 "FURTHER TOKEN P50",
                                 "TOKENS/PASS",
                                 "4-GRAMS REPEATED",
                                 "EXPECTED",
                                 "MEASURED",
                                 "SPEED-UP"}};
  for (const Report::Category& category : report.categories) {
    for (const auto& [mode, figures] : category.modes) {
      rows.push_back({Printable(category.name),
                      std::string(ModeName(mode)),
                      absl::StrCat(figures.num_completed),
                      Number(figures.stream_tokens_per_second()),
                      Number(figures.ttft_ms.p50),
                      Number(figures.itl_ms.p50),
                      Number(figures.tokens_per_pass(), 2),
                      Percent(figures.repeat_rate),
                      NumberOrDash(figures.predicted_speedup),
                      NumberOrDash(figures.measured_speedup),
                      mode == Mode::kPlain || !category.requests
                          ? "-"
                          : PooledText(category.requests->end_to_end)});
    }
  }
  return TableText(rows);
}

std::string RatioText(const std::optional<RatioEstimate>& ratio) {
  if (!ratio) return "no pair of blocks is complete";
  std::string text = Number(ratio->geometric_mean, 3);
  if (!ratio->interval) return absl::StrCat(text, " (one pair: no interval)");
  return absl::StrFormat("%s (95 %% interval %.3f to %.3f, %d pairs of blocks)",
                         text,
                         ratio->interval->low,
                         ratio->interval->high,
                         ratio->pairs);
}

std::string ComparisonText(const Comparison& comparison) {
  return absl::StrCat("speculative / plain, output tokens/s:    ",
                      RatioText(comparison.throughput),
                      "\nplain / speculative, time to first token: ",
                      RatioText(comparison.ttft),
                      "\n");
}

std::string RequestsText(const RequestComparison& comparison) {
  return absl::StrCat("the same of single streams, pooled:       ",
                      PooledText(comparison.end_to_end),
                      "\nbehind their first message:               ",
                      PooledText(comparison.decoding),
                      "\n");
}

std::string IdsText(const IdsComparison& ids,
                    const std::vector<Question>& questions) {
  if (ids.num_compared == 0) {
    return "token ids: no request completed in both modes\n";
  }
  if (ids.equal()) {
    return absl::StrCat("token ids of ",
                        ids.num_compared,
                        " requests compared: equal in both modes\n");
  }
  constexpr size_t kMostTold = 10;
  std::vector<std::string> told;
  for (const IdsComparison::Difference& difference : ids.differences) {
    if (told.size() == kMostTold) {
      told.push_back("...");
      break;
    }
    told.push_back(absl::StrCat("question ",
                                questions[difference.question].id,
                                " (request ",
                                difference.index,
                                ") from token ",
                                difference.position));
  }
  return absl::StrCat("TOKEN IDS DIFFER in ",
                      ids.differences.size(),
                      " of ",
                      ids.num_compared,
                      " requests: ",
                      absl::StrJoin(told, ", "),
                      "\n");
}

std::string GoodputText(const Report& report) {
  std::string text;
  for (const auto& [mode, figures] : report.modes) {
    const double wall_s = figures.wall_s > 0 ? figures.wall_s : 1;
    absl::StrAppendFormat(
        &text,
        "goodput, %s: %d of %d requests within all limits, %.2f requests/s, "
        "%.1f tokens/s\n",
        ModeName(mode),
        figures.num_good,
        figures.num_completed + figures.num_failed,
        static_cast<double>(figures.num_good) / wall_s,
        static_cast<double>(figures.good_tokens) / wall_s);
  }
  return text;
}

std::string FailuresText(const Report& report) {
  std::string text;
  for (const auto& [mode, figures] : report.modes) {
    for (const auto& [code, failure] : figures.failures) {
      absl::StrAppendFormat(
          &text,
          "failed, %s: %d with %s after p50 %.1f ms, p99 %.1f ms, for example: "
          "%s\n",
          ModeName(mode),
          failure.count,
          code,
          failure.latency_ms.p50,
          failure.latency_ms.p99,
          ErrorLine(failure.message));
    }
  }
  return text;
}

std::string EndText(const Report& report, const RunResult& run) {
  std::string text;
  if (report.num_cancelled > 0) {
    absl::StrAppend(
        &text, report.num_cancelled, " requests cancelled by this client\n");
  }
  if (run.interrupted) absl::StrAppend(&text, "interrupted\n");
  if (run.gave_up) {
    absl::StrAppend(&text, "gave up: too many requests failed in a row\n");
  }
  return text;
}

}  // namespace

std::string PooledText(const std::optional<PooledRatio>& ratio) {
  if (!ratio) return "-";
  std::string text = Number(ratio->ratio, 2);
  if (!ratio->interval) return text;
  return absl::StrFormat(
      "%s (%.2f to %.2f)", text, ratio->interval->low, ratio->interval->high);
}

std::string ReportText(const Report& report,
                       const RunResult& run,
                       const Options& options,
                       const std::vector<Question>& questions) {
  std::string text = absl::StrCat(HeadText(report, run, options),
                                  "\n",
                                  ModesText(report),
                                  "\n",
                                  LatencyText(report),
                                  "\n",
                                  CategoriesText(report),
                                  "\n");
  if (report.comparison) {
    absl::StrAppend(&text, ComparisonText(*report.comparison));
  }
  if (report.requests) absl::StrAppend(&text, RequestsText(*report.requests));
  if (report.ids) absl::StrAppend(&text, IdsText(*report.ids, questions));
  if (options.limits.any()) absl::StrAppend(&text, GoodputText(report));
  absl::StrAppend(&text, FailuresText(report), EndText(report, run));
  return text;
}

}  // namespace specwire::cli::bench
