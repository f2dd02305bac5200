// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <optional>
#include <string>

#include "cli/bench/report.h"
#include "cli/bench/texts.h"
#include "cli/completion.h"

namespace specwire::cli::bench {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json SummaryJson(const Summary& summary) {
  if (summary.count == 0) {
    return {{"p50", nullptr},
            {"p90", nullptr},
            {"p99", nullptr},
            {"mean", nullptr},
            {"count", 0}};
  }
  return {{"p50", summary.p50},
          {"p90", summary.p90},
          {"p99", summary.p99},
          {"mean", summary.mean},
          {"count", summary.count}};
}

Json SpeculationJson(const v1::SpeculationStats& stats) {
  Json json = StatsJson(stats);
  // Of single requests.
  json.erase("rule");
  json.erase("num_spec_tokens");
  json.erase("predicted_speedup");
  json.erase("measured_speedup");
  return json;
}

Json FailuresJson(const Figures& figures) {
  Json json = Json::object();
  for (const auto& [code, failure] : figures.failures) {
    json[code] = {{"count", failure.count},
                  {"overload", failure.overload},
                  {"message", failure.message},
                  {"latency_ms", SummaryJson(failure.latency_ms)}};
  }
  return json;
}

// What a mode and a category of it have both.
Json FiguresJson(const Figures& figures, double output_tokens_per_second) {
  return {{"output_tokens_per_second", output_tokens_per_second},
          {"ttft_ms", SummaryJson(figures.ttft_ms)},
          {"itl_ms", SummaryJson(figures.itl_ms)},
          {"chunk_gap_ms", SummaryJson(figures.chunk_gap_ms)},
          {"e2e_ms", SummaryJson(figures.e2e_ms)},
          {"queue_ms", SummaryJson(figures.queue_ms)},
          {"requests", figures.num_completed + figures.num_failed},
          {"completed", figures.num_completed},
          {"failed", figures.num_failed},
          {"output_tokens", figures.output_tokens},
          {"prompt_tokens", figures.prompt_tokens},
          {"cached_prompt_tokens", figures.cached_prompt_tokens},
          {"tokens_per_pass", figures.tokens_per_pass()},
          {"tokens_per_chunk", figures.tokens_per_chunk},
          {"repeat_rate", figures.repeat_rate},
          {"predicted_speedup", OrNull(figures.predicted_speedup)},
          {"measured_speedup", OrNull(figures.measured_speedup)},
          {"speculative_decoding", SpeculationJson(figures.speculation)}};
}

Json ModeJson(const Figures& figures) {
  Json json = FiguresJson(figures, figures.output_tokens_per_second());
  json["stream_tokens_per_second"] = figures.stream_tokens_per_second();
  json["requests_per_second"] = figures.requests_per_second();
  json["wall_s"] = figures.wall_s;
  json["send_delay_ms"] = SummaryJson(figures.send_delay_ms);
  const double wall_s = figures.wall_s;
  const double num_asked =
      static_cast<double>(figures.num_completed + figures.num_failed);
  const double num_good = static_cast<double>(figures.num_good);
  json["goodput"] = {
      {"requests", figures.num_good},
      {"share", num_asked > 0 ? num_good / num_asked : 0},
      {"requests_per_second", wall_s > 0 ? num_good / wall_s : 0},
      {"tokens_per_second",
       wall_s > 0 ? static_cast<double>(figures.good_tokens) / wall_s : 0}};
  json["failures"] = FailuresJson(figures);
  return json;
}

// An estimate by the name given, with its interval.
template <typename Estimate>
Json EstimateJson(const char* name, double value, const Estimate& estimate) {
  Json json = {{name, value},
               {"low", nullptr},
               {"high", nullptr},
               {"pairs", estimate.pairs}};
  if (estimate.interval) {
    json["low"] = estimate.interval->low;
    json["high"] = estimate.interval->high;
  }
  return json;
}

Json RatioJson(const std::optional<RatioEstimate>& ratio) {
  if (!ratio) return nullptr;
  return EstimateJson("geometric_mean", ratio->geometric_mean, *ratio);
}

Json ComparisonJson(const Comparison& comparison) {
  Json throughput = RatioJson(comparison.throughput);
  if (!throughput.is_null()) {
    throughput["total"] = comparison.total_throughput;
  }
  return {{"output_tokens_per_second", throughput},
          {"ttft", RatioJson(comparison.ttft)},
          {"interval", "95 %, Student's t on logarithms of paired blocks"}};
}

Json RequestComparisonJson(const RequestComparison& comparison) {
  return {{"end_to_end", PooledJson(comparison.end_to_end)},
          {"decoding", PooledJson(comparison.decoding)},
          {"interval", "95 %, bootstrap over pairs of requests"}};
}

Json CategoriesJson(const Report& report) {
  Json json = Json::object();
  for (const Report::Category& category : report.categories) {
    Json& entry = json[category.name] = Json::object();
    for (const auto& [mode, figures] : category.modes) {
      // A category has no wall time of its own: categories run mixed.
      entry[std::string(ModeName(mode))] =
          FiguresJson(figures, figures.stream_tokens_per_second());
    }
    if (category.requests) {
      entry["speedup"] = RequestComparisonJson(*category.requests);
    }
  }
  return json;
}

Json DifferencesJson(const IdsComparison& ids,
                     const std::vector<Question>& questions) {
  Json json = Json::array();
  for (const IdsComparison::Difference& difference : ids.differences) {
    json.push_back({{"index", difference.index},
                    {"question_id", questions[difference.question].id},
                    {"position", difference.position}});
  }
  return json;
}

Json SettingsJson(const Options& options) {
  Json modes = Json::array();
  for (Mode mode : options.modes) modes.push_back(std::string(ModeName(mode)));
  Json json = {{"dataset", options.dataset},
               {"modes", modes},
               {"max_tokens", options.max_tokens},
               {"temperature", options.temperature},
               {"seed", options.seed},
               {"drafter", options.drafter},
               {"max_draft_tokens", OrNull(options.max_draft_tokens)},
               {"patience_us", OrNull(options.patience_us)},
               {"window", OrNull(options.window)},
               {"ignore_eos", options.ignore_eos},
               {"share_prefixes", options.share_prefixes},
               {"deadline_ms", OrNull(options.deadline_ms)},
               {"duration_s", OrNull(options.duration_s)},
               {"goodput",
                {{"ttft_ms", OrNull(options.limits.ttft_ms)},
                 {"itl_ms", OrNull(options.limits.itl_ms)},
                 {"e2e_ms", OrNull(options.limits.e2e_ms)}}}};
  if (options.rate) {
    json["rate"] = *options.rate;
    json["burstiness"] = options.burstiness.value_or(1);
    json["max_concurrency"] = options.max_in_flight();
  } else {
    json["concurrency"] = options.num_workers();
  }
  return json;
}

}  // namespace

Json PooledJson(const std::optional<PooledRatio>& ratio) {
  if (!ratio) return nullptr;
  return EstimateJson("ratio", ratio->ratio, *ratio);
}

Json ReportJson(const Report& report,
                const RunResult& run,
                const Options& options,
                const std::vector<Question>& questions) {
  Json json = {{"modes", Json::object()},
               {"categories", CategoriesJson(report)},
               {"ids_equal", nullptr},
               {"ids_compared", 0},
               {"ids_different", Json::array()}};
  for (const auto& [mode, figures] : report.modes) {
    json["modes"][std::string(ModeName(mode))] = ModeJson(figures);
  }
  if (report.ids) {
    if (report.ids->num_compared > 0) {
      json["ids_equal"] = report.ids->equal();
    }
    json["ids_compared"] = report.ids->num_compared;
    json["ids_different"] = DifferencesJson(*report.ids, questions);
  }
  json["speedup"] =
      report.comparison ? ComparisonJson(*report.comparison) : Json(nullptr);
  json["stream_speedup"] =
      report.requests ? RequestComparisonJson(*report.requests) : Json(nullptr);
  json["model"] = report.model;
  json["model_digest"] = report.model_digest;
  json["synthetic"] = report.synthetic;
  json["started_unix_s"] =
      absl::ToDoubleSeconds(run.started - absl::UnixEpoch());
  json["warmup_requests"] = run.num_warmup;
  json["cancelled"] = report.num_cancelled;
  json["interrupted"] = run.interrupted;
  json["gave_up"] = run.gave_up;
  json["client_cpu_s"] = run.client_cpu_s;
  json["settings"] = SettingsJson(options);
  return json;
}

Json RecordJson(const Record& record, const Question& question) {
  const auto ms = [](absl::Duration time) {
    return absl::ToDoubleMilliseconds(time);
  };
  Json json = {
      {"index", record.index},
      {"question_id", question.id},
      {"category", question.category},
      {"group", std::string(GroupOf(question.category))},
      {"mode", std::string(ModeName(record.mode))},
      {"block", record.block},
      {"status",
       record.cancelled ? "cancelled by the client"
                        : absl::StatusCodeToString(record.status.code())},
      {"message", std::string(record.status.message())},
      {"scheduled_ms", ms(record.scheduled)},
      {"sent_ms", ms(record.sent)},
      {"done_ms", ms(record.done)},
      {"ttft_ms", OrNull(record.TtftMs())},
      {"itl_ms", OrNull(record.ItlMs())}};
  Json& chunks = json["chunks"] = Json::array();
  for (const Chunk& chunk : record.chunks) {
    chunks.push_back(Json::array({ms(chunk.time), chunk.num_tokens}));
  }
  json["temperature"] = record.temperature;
  json["seed"] = record.seed;
  json["prompt_token_ids"] = record.prompt_token_ids;
  json["token_ids"] = record.token_ids;
  json["repeat_rate"] = RepeatRate(record.prompt_token_ids, record.token_ids);
  if (!record.ok()) return json;
  const v1::GenerateFinished& finished = record.finished;
  json["finish_reason"] =
      std::string(FinishReasonName(finished.finish_reason()));
  json["prompt_tokens"] = finished.usage().prompt_tokens();
  json["cached_prompt_tokens"] = finished.usage().cached_prompt_tokens();
  json["queue_ms"] = finished.timings().queue_time_ms();
  json["speculative_decoding"] = StatsJson(finished.speculation());
  return json;
}

}  // namespace specwire::cli::bench
