// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/figures.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include "cli/bench/texts.h"

namespace specwire::cli::bench {
namespace {

double Rate(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : 0;
}

bool Within(const std::optional<double>& value,
            const std::optional<double>& limit) {
  // What a request is too short to have, it cannot exceed.
  return !limit || !value || *value <= *limit;
}

bool IsGood(const Record& record, const Limits& limits) {
  return Within(record.TtftMs(), limits.ttft_ms) &&
         Within(record.ItlMs(), limits.itl_ms) &&
         Within(record.LatencyMs(), limits.e2e_ms);
}

// Values of which only the distribution is kept.
struct Samples {
  std::vector<double> ttft_ms;
  std::vector<double> itl_ms;
  std::vector<double> chunk_gap_ms;
  std::vector<double> e2e_ms;
  std::vector<double> queue_ms;
  std::vector<double> send_delay_ms;
  std::vector<double> predicted_speedups;
  std::vector<double> measured_speedups;
  double repeat_rates = 0;
  int64_t num_chunks = 0;
};

void AddCompleted(const Record& record,
                  const Limits& limits,
                  Samples* samples,
                  Figures* figures) {
  const int64_t num_tokens = static_cast<int64_t>(record.token_ids.size());
  ++figures->num_completed;
  figures->prompt_tokens += record.finished.usage().prompt_tokens();
  figures->cached_prompt_tokens +=
      record.finished.usage().cached_prompt_tokens();
  figures->output_tokens += num_tokens;
  figures->busy_s += record.LatencyMs() / 1000;
  AddStats(record.finished.speculation(), &figures->speculation);
  if (IsGood(record, limits)) {
    ++figures->num_good;
    figures->good_tokens += num_tokens;
  }
  if (record.TtftMs()) samples->ttft_ms.push_back(*record.TtftMs());
  if (record.ItlMs()) samples->itl_ms.push_back(*record.ItlMs());
  for (size_t i = 1; i < record.chunks.size(); ++i) {
    samples->chunk_gap_ms.push_back(absl::ToDoubleMilliseconds(
        record.chunks[i].time - record.chunks[i - 1].time));
  }
  samples->e2e_ms.push_back(record.LatencyMs());
  samples->queue_ms.push_back(record.finished.timings().queue_time_ms());
  samples->send_delay_ms.push_back(
      absl::ToDoubleMilliseconds(record.sent - record.scheduled));
  const v1::SpeculationStats& stats = record.finished.speculation();
  if (stats.predicted_speedup() > 0) {
    samples->predicted_speedups.push_back(stats.predicted_speedup());
  }
  if (stats.measured_speedup() > 0) {
    samples->measured_speedups.push_back(stats.measured_speedup());
  }
  samples->repeat_rates +=
      RepeatRate(record.prompt_token_ids, record.token_ids);
  samples->num_chunks += static_cast<int64_t>(record.chunks.size());
}

std::optional<double> MeanOf(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return Summarize(values).mean;
}

void Finish(Samples samples, Figures* figures) {
  figures->predicted_speedup = MeanOf(samples.predicted_speedups);
  figures->measured_speedup = MeanOf(samples.measured_speedups);
  figures->ttft_ms = Summarize(std::move(samples.ttft_ms));
  figures->itl_ms = Summarize(std::move(samples.itl_ms));
  figures->chunk_gap_ms = Summarize(std::move(samples.chunk_gap_ms));
  figures->e2e_ms = Summarize(std::move(samples.e2e_ms));
  figures->queue_ms = Summarize(std::move(samples.queue_ms));
  figures->send_delay_ms = Summarize(std::move(samples.send_delay_ms));
  figures->repeat_rate =
      Rate(samples.repeat_rates, static_cast<double>(figures->num_completed));
  figures->tokens_per_chunk = Rate(static_cast<double>(figures->output_tokens),
                                   static_cast<double>(samples.num_chunks));
}

// A block in one mode, as pairs need it.
struct BlockFigures {
  double tokens_per_second = 0;
  std::optional<double> median_ttft_ms;
};

BlockFigures FiguresOf(const BlockRun& block,
                       const std::vector<const Record*>& records) {
  BlockFigures figures;
  int64_t tokens = 0;
  std::vector<double> ttfts;
  for (const Record* record : records) {
    if (!record->ok()) continue;
    tokens += static_cast<int64_t>(record->token_ids.size());
    if (record->TtftMs()) ttfts.push_back(*record->TtftMs());
  }
  figures.tokens_per_second =
      Rate(static_cast<double>(tokens), absl::ToDoubleSeconds(block.wall));
  if (!ttfts.empty()) figures.median_ttft_ms = Median(std::move(ttfts));
  return figures;
}

using BlockKey = std::pair<int64_t, Mode>;

// Appends the ratio if both are known.
void AddRatio(double above, double below, std::vector<double>* ratios) {
  if (above > 0 && below > 0) ratios->push_back(above / below);
}

// Of complete blocks.
std::map<BlockKey, BlockFigures> FiguresOfBlocks(const RunResult& run) {
  std::map<BlockKey, std::vector<const Record*>> records;
  for (const Record& record : run.records) {
    records[{record.block, record.mode}].push_back(&record);
  }
  std::map<BlockKey, BlockFigures> figures;
  for (const BlockRun& block : run.blocks) {
    if (!block.complete) continue;
    const BlockKey key(block.number, block.mode);
    figures[key] = FiguresOf(block, records[key]);
  }
  return figures;
}

absl::Duration WallTime(const RunResult& run, Mode mode) {
  absl::Duration wall;
  for (const BlockRun& block : run.blocks) {
    if (block.mode == mode) wall += block.wall;
  }
  return wall;
}

double TotalRate(const RunResult& run, Mode mode) {
  int64_t tokens = 0;
  for (const Record& record : run.records) {
    if (record.mode == mode && record.ok()) {
      tokens += static_cast<int64_t>(record.token_ids.size());
    }
  }
  return Rate(static_cast<double>(tokens),
              absl::ToDoubleSeconds(WallTime(run, mode)));
}

std::vector<std::string> CategoriesInOrder(
    const std::vector<Question>& questions) {
  std::vector<std::string> names;
  for (const Question& question : questions) {
    const absl::string_view name = GroupOf(question.category);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.emplace_back(name);
    }
  }
  return names;
}

void AddCategories(const RunResult& run,
                   const Options& options,
                   const std::vector<Question>& questions,
                   Report* report) {
  std::map<std::pair<std::string, Mode>, std::vector<const Record*>> groups;
  for (const Record& record : run.records) {
    const absl::string_view name = GroupOf(questions[record.question].category);
    groups[{std::string(name), record.mode}].push_back(&record);
  }
  for (const std::string& name : CategoriesInOrder(questions)) {
    Report::Category category{name, {}, std::nullopt};
    for (Mode mode : options.modes) {
      const auto found = groups.find({name, mode});
      if (found == groups.end()) continue;
      // Categories run mixed, so a category has no wall time of its own.
      category.modes[mode] = ComputeFigures(found->second,
                                            absl::ZeroDuration(),
                                            options.limits,
                                            options.deadline_ms.has_value());
    }
    if (options.modes.size() == 2) {
      category.requests = CompareRequests(groups[{name, Mode::kPlain}],
                                          groups[{name, Mode::kSpeculative}]);
    }
    if (!category.modes.empty()) {
      report->categories.push_back(std::move(category));
    }
  }
}

}  // namespace

double Figures::output_tokens_per_second() const {
  return Rate(static_cast<double>(output_tokens), wall_s);
}

double Figures::stream_tokens_per_second() const {
  return Rate(static_cast<double>(output_tokens), busy_s);
}

double Figures::requests_per_second() const {
  return Rate(static_cast<double>(num_completed), wall_s);
}

double Figures::tokens_per_pass() const {
  return Rate(static_cast<double>(output_tokens),
              static_cast<double>(speculation.num_passes()));
}

Figures ComputeFigures(const std::vector<const Record*>& records,
                       absl::Duration wall,
                       const Limits& limits,
                       bool has_deadline) {
  Figures figures;
  figures.wall_s = absl::ToDoubleSeconds(wall);
  Samples samples;
  std::map<std::string, std::vector<double>> failure_ms;
  for (const Record* record : records) {
    if (record->ok()) {
      AddCompleted(*record, limits, &samples, &figures);
    } else if (record->failed()) {
      ++figures.num_failed;
      const std::string code = absl::StatusCodeToString(record->status.code());
      FailureFigures& failure = figures.failures[code];
      if (++failure.count == 1) {
        failure.message = std::string(record->status.message());
        failure.overload = IsOverload(record->status, has_deadline);
      }
      failure_ms[code].push_back(record->LatencyMs());
    }
  }
  for (auto& [code, values] : failure_ms) {
    figures.failures[code].latency_ms = Summarize(std::move(values));
  }
  Finish(std::move(samples), &figures);
  return figures;
}

Comparison Compare(const RunResult& run) {
  std::map<BlockKey, BlockFigures> blocks = FiguresOfBlocks(run);
  std::vector<double> throughput;
  std::vector<double> ttft;
  for (const auto& [key, plain] : blocks) {
    const auto other = blocks.find({key.first, Mode::kSpeculative});
    if (key.second != Mode::kPlain || other == blocks.end()) continue;
    const BlockFigures& speculative = other->second;
    AddRatio(
        speculative.tokens_per_second, plain.tokens_per_second, &throughput);
    AddRatio(plain.median_ttft_ms.value_or(0),
             speculative.median_ttft_ms.value_or(0),
             &ttft);
  }
  Comparison comparison;
  comparison.throughput = EstimateRatio(throughput);
  comparison.ttft = EstimateRatio(ttft);
  comparison.total_throughput =
      Rate(TotalRate(run, Mode::kSpeculative), TotalRate(run, Mode::kPlain));
  return comparison;
}

RequestComparison CompareRequests(
    const std::vector<const Record*>& plain,
    const std::vector<const Record*>& speculative) {
  std::unordered_map<int64_t, const Record*> by_index;
  for (const Record* record : plain) {
    if (record->ok()) by_index[record->index] = record;
  }
  std::vector<PairedWork> end_to_end;
  std::vector<PairedWork> decoding;
  for (const Record* record : speculative) {
    const auto found = by_index.find(record->index);
    if (!record->ok() || found == by_index.end()) continue;
    const Record& base = *found->second;
    end_to_end.push_back({static_cast<double>(record->token_ids.size()),
                          record->LatencyMs(),
                          static_cast<double>(base.token_ids.size()),
                          base.LatencyMs()});
    decoding.push_back({static_cast<double>(record->num_decoded()),
                        absl::ToDoubleMilliseconds(record->decode_time()),
                        static_cast<double>(base.num_decoded()),
                        absl::ToDoubleMilliseconds(base.decode_time())});
  }
  return {PoolPairs(std::move(end_to_end)), PoolPairs(std::move(decoding))};
}

IdsComparison CompareIds(const std::vector<Record>& records) {
  std::unordered_map<int64_t, const Record*> plain;
  for (const Record& record : records) {
    if (record.ok() && record.mode == Mode::kPlain) {
      plain[record.index] = &record;
    }
  }
  IdsComparison comparison;
  for (const Record& record : records) {
    if (!record.ok() || record.mode != Mode::kSpeculative) continue;
    const auto found = plain.find(record.index);
    if (found == plain.end()) continue;
    ++comparison.num_compared;
    const std::vector<int32_t>& expected = found->second->token_ids;
    const std::vector<int32_t>& ids = record.token_ids;
    const auto differ =
        std::mismatch(expected.begin(), expected.end(), ids.begin(), ids.end());
    if (differ.first == expected.end() && differ.second == ids.end()) continue;
    comparison.differences.push_back(
        {record.index,
         record.question,
         static_cast<size_t>(differ.first - expected.begin())});
  }
  std::sort(comparison.differences.begin(),
            comparison.differences.end(),
            [](const auto& a, const auto& b) { return a.index < b.index; });
  return comparison;
}

bool Report::HasFaults() const {
  for (const auto& [_, figures] : modes) {
    for (const auto& [code, failure] : figures.failures) {
      if (!failure.overload) return true;
    }
  }
  return false;
}

Report MakeReport(const RunResult& run,
                  const Options& options,
                  const std::vector<Question>& questions) {
  Report report;
  std::map<Mode, std::vector<const Record*>> by_mode;
  for (const Record& record : run.records) {
    by_mode[record.mode].push_back(&record);
    if (record.cancelled) ++report.num_cancelled;
    report.synthetic = report.synthetic || record.synthetic;
    if (report.model.empty()) {
      report.model = record.model;
      report.model_digest = record.model_digest;
    }
  }
  for (Mode mode : options.modes) {
    report.modes[mode] = ComputeFigures(by_mode[mode],
                                        WallTime(run, mode),
                                        options.limits,
                                        options.deadline_ms.has_value());
  }
  AddCategories(run, options, questions, &report);
  if (options.modes.size() == 2) {
    report.comparison = Compare(run);
    report.requests =
        CompareRequests(by_mode[Mode::kPlain], by_mode[Mode::kSpeculative]);
    report.ids = CompareIds(run.records);
  }
  return report;
}

}  // namespace specwire::cli::bench
