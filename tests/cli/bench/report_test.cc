// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/progress.h"

namespace specwire::cli::bench {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

absl::Duration Ms(double ms) { return absl::Milliseconds(ms); }

// Six tokens in three messages: the first 100 ms after the time it was meant to
// be sent, then 40 ms and 20 ms later.
Record MakeRecord(Mode mode, int64_t index, double start_ms) {
  Record record;
  record.mode = mode;
  record.index = index;
  record.question = static_cast<size_t>(index % 2);
  record.block = index / 2;
  record.scheduled = Ms(start_ms);
  record.sent = Ms(start_ms + 1);
  v1::GenerateResponse response;
  response.mutable_started()->set_model("m");
  response.mutable_started()->set_model_digest("0123456789abcdef");
  response.mutable_started()->mutable_sampling()->set_temperature(0.5F);
  response.mutable_started()->mutable_sampling()->set_seed(7 + index);
  for (const int32_t id : {8, 9, 10, 11, 12, 13}) {
    response.mutable_started()->add_prompt_token_ids(id);
  }
  record.Add(response, Ms(start_ms + 2));
  int next_id = 10;
  for (const auto& [time_ms, count] :
       std::vector<std::pair<double, int>>{{100, 1}, {140, 3}, {160, 2}}) {
    response.mutable_delta()->Clear();
    for (int i = 0; i < count; ++i) {
      response.mutable_delta()->add_token_ids(next_id++);
    }
    record.Add(response, Ms(start_ms + time_ms));
  }
  v1::GenerateFinished* finished = response.mutable_finished();
  finished->set_finish_reason(v1::FINISH_REASON_LENGTH);
  finished->mutable_usage()->set_prompt_tokens(20);
  finished->mutable_usage()->set_completion_tokens(6);
  finished->mutable_timings()->set_queue_time_ms(5);
  v1::SpeculationStats* stats = finished->mutable_speculation();
  stats->set_num_passes(mode == Mode::kPlain ? 6 : 3);
  if (mode == Mode::kSpeculative) {
    stats->set_num_spec_steps(2);
    stats->set_num_draft_tokens(4);
    stats->set_num_accepted_draft_tokens(3);
    stats->add_acceptance_histogram(0);
    stats->add_acceptance_histogram(1);
    stats->add_acceptance_histogram(1);
    stats->set_drafter("ngram");
    stats->set_num_ahead_hits(2);
    stats->set_num_local_draft_tokens(3);
    stats->set_num_accepted_local_draft_tokens(1);
    stats->set_num_ahead_misses(1);
    // Some replies tell them, others do not.
    if (index > 0) stats->set_predicted_speedup(1 + static_cast<double>(index));
    if (index > 1) stats->set_measured_speedup(1.5);
  }
  record.Add(response, Ms(start_ms + 161));
  return record;
}

std::vector<Question> MakeQuestions() {
  return {{81, "writing", "Write."}, {90, "qa", "Why?"}};
}

// Two blocks of two requests. Each takes 400 ms plainly, and 200 and 100 ms
// with speculation.
RunResult MakeRun() {
  RunResult run;
  run.num_warmup = 1;
  for (int64_t block = 0; block < 2; ++block) {
    for (Mode mode : {Mode::kPlain, Mode::kSpeculative}) {
      for (int64_t i = 0; i < 2; ++i) {
        run.records.push_back(
            MakeRecord(mode, 2 * block + i, 1000.0 * static_cast<double>(i)));
      }
      BlockRun done;
      done.number = block;
      done.mode = mode;
      done.wall = mode == Mode::kPlain ? Ms(400) : Ms(block == 0 ? 200 : 100);
      run.blocks.push_back(done);
    }
  }
  return run;
}

Report MakeTestReport(const RunResult& run, const Options& options = {}) {
  return MakeReport(run, options, MakeQuestions());
}

TEST(RecordTest, TimesCountFromWhenItWasMeantToBeSent) {
  const Record record = MakeRecord(Mode::kPlain, 0, 500);
  EXPECT_DOUBLE_EQ(*record.TtftMs(), 100);
  // 60 ms for five tokens, however many a message brought.
  EXPECT_DOUBLE_EQ(*record.ItlMs(), 12);
  EXPECT_DOUBLE_EQ(record.LatencyMs(), 161);
  EXPECT_FALSE(Record().TtftMs().has_value());
  EXPECT_FALSE(Record().ItlMs().has_value());
}

TEST(RecordTest, OverloadIsARefusalOrBeingLateWithADeadline) {
  EXPECT_TRUE(IsOverload(absl::ResourceExhaustedError(""), false));
  EXPECT_TRUE(IsOverload(absl::DeadlineExceededError(""), true));
  EXPECT_FALSE(IsOverload(absl::DeadlineExceededError(""), false));
  EXPECT_FALSE(IsOverload(absl::UnavailableError(""), true));
}

TEST(FiguresTest, RatesAndDistributions) {
  const Report report = MakeTestReport(MakeRun());
  const Figures& plain = report.modes.at(Mode::kPlain);
  EXPECT_EQ(plain.num_completed, 4);
  EXPECT_EQ(plain.output_tokens, 24);
  EXPECT_DOUBLE_EQ(plain.output_tokens_per_second(), 24 / 0.8);
  EXPECT_NEAR(plain.stream_tokens_per_second(), 6 / 0.161, 1e-9);
  EXPECT_DOUBLE_EQ(plain.requests_per_second(), 4 / 0.8);
  EXPECT_DOUBLE_EQ(plain.ttft_ms.p50, 100);
  EXPECT_DOUBLE_EQ(plain.itl_ms.p99, 12);
  EXPECT_EQ(plain.chunk_gap_ms.count, 8);
  EXPECT_DOUBLE_EQ(plain.chunk_gap_ms.p50, 30);
  EXPECT_DOUBLE_EQ(plain.e2e_ms.mean, 161);
  EXPECT_DOUBLE_EQ(plain.queue_ms.p90, 5);
  EXPECT_DOUBLE_EQ(plain.send_delay_ms.p50, 1);
  EXPECT_DOUBLE_EQ(plain.tokens_per_pass(), 1);
  EXPECT_DOUBLE_EQ(plain.tokens_per_chunk, 2);
  const Figures& speculative = report.modes.at(Mode::kSpeculative);
  EXPECT_DOUBLE_EQ(speculative.tokens_per_pass(), 2);
  const v1::SpeculationStats& stats = speculative.speculation;
  EXPECT_EQ(stats.num_spec_steps(), 8);
  EXPECT_DOUBLE_EQ(stats.draft_acceptance_rate(), 0.75);
  EXPECT_DOUBLE_EQ(stats.mean_acceptance_length(), 2.5);
  EXPECT_EQ(stats.acceptance_histogram(2), 4);
}

TEST(FiguresTest, PairsOfBlocksAreCompared) {
  RunResult run = MakeRun();
  Comparison comparison = Compare(run);
  // Ratios 2 and 4.
  ASSERT_TRUE(comparison.throughput.has_value());
  EXPECT_EQ(comparison.throughput->pairs, 2);
  EXPECT_NEAR(comparison.throughput->geometric_mean, std::sqrt(8), 1e-9);
  EXPECT_NEAR(comparison.total_throughput, 0.8 / 0.3, 1e-9);
  EXPECT_NEAR(comparison.ttft->geometric_mean, 1, 1e-9);
  // A later first token of plain decoding counts for speculation.
  for (Record& record : run.records) {
    if (record.mode == Mode::kPlain) record.scheduled -= Ms(50);
  }
  EXPECT_NEAR(Compare(run).ttft->geometric_mean, 1.5, 1e-9);
  // A block that was cut short has no pair.
  run.blocks[2].complete = false;
  EXPECT_EQ(Compare(run).throughput->pairs, 1);
  run.blocks.resize(1);
  EXPECT_FALSE(Compare(run).throughput.has_value());
}

TEST(FiguresTest, WhatRepliesTellIsAveragedOverThoseThatTell) {
  const Report report = MakeTestReport(MakeRun());
  const Figures& speculative = report.modes.at(Mode::kSpeculative);
  EXPECT_DOUBLE_EQ(*speculative.predicted_speedup, 3);
  EXPECT_DOUBLE_EQ(*speculative.measured_speedup, 1.5);
  EXPECT_EQ(speculative.speculation.num_ahead_hits(), 8);
  EXPECT_EQ(speculative.speculation.num_local_draft_tokens(), 12);
  EXPECT_EQ(speculative.speculation.num_accepted_local_draft_tokens(), 4);
  EXPECT_EQ(speculative.speculation.num_ahead_misses(), 4);
  EXPECT_FALSE(report.modes.at(Mode::kPlain).predicted_speedup.has_value());
  // 10 11 12 13 is in the prompt, the two runs behind it are not.
  EXPECT_DOUBLE_EQ(speculative.repeat_rate, 1.0 / 3);
}

TEST(FiguresTest, PairsOfRequestsAreCompared) {
  RunResult run = MakeRun();
  // The question of category qa: 5 tokens in 30 ms instead of 60 with
  // speculation, and 30 ms less in all of 161.
  for (Record& record : run.records) {
    if (record.mode == Mode::kPlain || record.question == 0) continue;
    record.chunks[1].time -= Ms(10);
    record.chunks[2].time -= Ms(30);
    record.done -= Ms(30);
  }
  const Report report = MakeTestReport(run);
  ASSERT_EQ(report.categories.size(), 2u);
  const RequestComparison& same = *report.categories[0].requests;
  EXPECT_DOUBLE_EQ(same.decoding->ratio, 1);
  EXPECT_DOUBLE_EQ(same.end_to_end->ratio, 1);
  const RequestComparison& faster = *report.categories[1].requests;
  EXPECT_EQ(faster.decoding->pairs, 2);
  EXPECT_NEAR(faster.decoding->ratio, 2, 1e-9);
  EXPECT_NEAR(faster.end_to_end->ratio, 161.0 / 131, 1e-9);
  EXPECT_NEAR(faster.decoding->interval->low, 2, 1e-9);
  EXPECT_EQ(report.requests->decoding->pairs, 4);
  EXPECT_NEAR(report.requests->decoding->ratio, 60.0 / 45, 1e-9);
  // What completed in one mode alone is in no pair.
  run.records[0].status = absl::ResourceExhaustedError("full");
  EXPECT_EQ(MakeTestReport(run).requests->decoding->pairs, 3);
}

TEST(FiguresTest, FirstDifferenceIsTold) {
  RunResult run = MakeRun();
  EXPECT_TRUE(CompareIds(run.records).equal());
  EXPECT_EQ(CompareIds(run.records).num_compared, 4);
  // The second request of the second block, with speculation.
  run.records[7].token_ids[4] = 99;
  // One that is a prefix of the other differs where it ends.
  run.records[2].token_ids.resize(3);
  // What failed is not compared.
  run.records[3].status = absl::ResourceExhaustedError("full");
  run.records[3].token_ids.clear();
  const IdsComparison ids = CompareIds(run.records);
  EXPECT_EQ(ids.num_compared, 3);
  ASSERT_EQ(ids.differences.size(), 2u);
  EXPECT_EQ(ids.differences[0].index, 0);
  EXPECT_EQ(ids.differences[0].position, 3u);
  EXPECT_EQ(ids.differences[1].index, 3);
  EXPECT_EQ(ids.differences[1].question, 1u);
  EXPECT_EQ(ids.differences[1].position, 4u);
}

TEST(FiguresTest, FailuresAreCountedByCodeAndNotAsTokens) {
  RunResult run = MakeRun();
  run.records[0].status = absl::ResourceExhaustedError("full");
  run.records[1].status = absl::DeadlineExceededError("late");
  run.records[4].cancelled = true;
  Options options;
  options.deadline_ms = 100;
  Report report = MakeTestReport(run, options);
  EXPECT_FALSE(report.HasFaults());
  EXPECT_EQ(report.num_cancelled, 1);
  const Figures& plain = report.modes.at(Mode::kPlain);
  EXPECT_EQ(plain.num_completed, 1);
  EXPECT_EQ(plain.num_failed, 2);
  EXPECT_EQ(plain.output_tokens, 6);
  const FailureFigures& full = plain.failures.at("RESOURCE_EXHAUSTED");
  EXPECT_EQ(full.count, 1);
  EXPECT_EQ(full.message, "full");
  EXPECT_DOUBLE_EQ(full.latency_ms.p99, 161);
  // Without a deadline of its own being late is a fault.
  EXPECT_TRUE(MakeTestReport(run).HasFaults());
}

TEST(FiguresTest, GoodputCountsWhatIsWithinAllLimits) {
  RunResult run = MakeRun();
  run.records[0].scheduled -= Ms(100);
  run.records[1].status = absl::ResourceExhaustedError("full");
  Options options;
  options.limits.ttft_ms = 150;
  options.limits.itl_ms = 12;
  const Report report = MakeTestReport(run, options);
  EXPECT_EQ(report.modes.at(Mode::kPlain).num_good, 2);
  EXPECT_EQ(report.modes.at(Mode::kPlain).good_tokens, 12);
  options.limits.itl_ms = 11.9;
  EXPECT_EQ(MakeTestReport(run, options).modes.at(Mode::kPlain).num_good, 0);
  const Json json = ReportJson(report, run, options, MakeQuestions());
  EXPECT_DOUBLE_EQ(json["modes"]["plain"]["goodput"]["share"].get<double>(),
                   0.5);
  EXPECT_DOUBLE_EQ(
      json["modes"]["plain"]["goodput"]["tokens_per_second"].get<double>(),
      12 / 0.8);
}

TEST(ReportTest, JsonHasTheDocumentedNames) {
  const RunResult run = MakeRun();
  const Json json =
      ReportJson(MakeTestReport(run), run, Options(), MakeQuestions());
  for (const char* mode : {"plain", "speculative"}) {
    for (const Json& part : {json["modes"][mode],
                             json["categories"]["chat"][mode],
                             json["categories"]["qa"][mode]}) {
      EXPECT_GT(part["output_tokens_per_second"].get<double>(), 0);
      for (const char* name : {"ttft_ms", "itl_ms"}) {
        for (const char* percentile : {"p50", "p90", "p99"}) {
          EXPECT_GT(part[name][percentile].get<double>(), 0);
        }
      }
    }
  }
  EXPECT_EQ(json["ids_equal"], true);
  EXPECT_EQ(json["ids_compared"], 4);
  EXPECT_EQ(json["speedup"]["output_tokens_per_second"]["pairs"], 2);
  EXPECT_EQ(json["warmup_requests"], 1);
  EXPECT_EQ(json["categories"]["qa"]["plain"]["requests"], 2);
  EXPECT_EQ(json["categories"]["qa"]["speedup"]["end_to_end"]["pairs"], 2);
  EXPECT_EQ(json["stream_speedup"]["decoding"]["pairs"], 4);
  EXPECT_EQ(json["modes"]["speculative"]["predicted_speedup"], 3);
  EXPECT_TRUE(json["modes"]["plain"]["measured_speedup"].is_null());
}

TEST(ReportTest, OneModeHasNothingToCompare) {
  RunResult run = MakeRun();
  std::erase_if(run.records,
                [](const Record& r) { return r.mode == Mode::kPlain; });
  Options options;
  options.modes = {Mode::kSpeculative};
  const Report report = MakeTestReport(run, options);
  const Json json = ReportJson(report, run, options, MakeQuestions());
  EXPECT_TRUE(json["ids_equal"].is_null());
  EXPECT_TRUE(json["speedup"].is_null());
  EXPECT_FALSE(json["modes"].contains("plain"));
  EXPECT_THAT(ReportText(report, run, options, MakeQuestions()),
              Not(HasSubstr("plain")));
}

TEST(ReportTest, TextNamesDifferencesFailuresAndWhatIsMadeUp) {
  RunResult run = MakeRun();
  run.records[7].token_ids[4] = 99;
  run.records[0].status = absl::UnavailableError("no verifier serves");
  run.records[1].synthetic = true;
  run.interrupted = true;
  Options options;
  options.dataset = "q.jsonl";
  const std::string text =
      ReportText(MakeTestReport(run), run, options, MakeQuestions());
  EXPECT_THAT(text, HasSubstr("DIFFER in 1 of 3 requests: question 90"));
  EXPECT_THAT(text, HasSubstr("from token 4"));
  EXPECT_THAT(text, HasSubstr("1 with UNAVAILABLE"));
  EXPECT_THAT(text, HasSubstr("no verifier serves"));
  EXPECT_THAT(text, HasSubstr("SYNTHETIC"));
  EXPECT_THAT(text, HasSubstr("interrupted"));
  EXPECT_THAT(text, HasSubstr("2 pairs of blocks"));
  EXPECT_THAT(text, HasSubstr("closed loop, concurrency 1"));
}

TEST(ReportTest, ARunWithoutAnyRequestHasAReport) {
  const RunResult run;
  const Report report = MakeTestReport(run);
  EXPECT_FALSE(ReportText(report, run, Options(), MakeQuestions()).empty());
  const Json json = ReportJson(report, run, Options(), MakeQuestions());
  EXPECT_EQ(json["modes"]["plain"]["output_tokens_per_second"], 0);
  EXPECT_TRUE(json["speedup"]["ttft"].is_null());
  EXPECT_TRUE(json["ids_equal"].is_null());
}

TEST(ReportTest, ARecordTellsEveryMessage) {
  const Json json =
      RecordJson(MakeRecord(Mode::kSpeculative, 1, 0), MakeQuestions()[1]);
  EXPECT_EQ(json["question_id"], 90);
  EXPECT_EQ(json["mode"], "speculative");
  EXPECT_EQ(json["status"], "OK");
  EXPECT_EQ(json["chunks"].size(), 3u);
  EXPECT_EQ(json["chunks"][1][0], 140);
  EXPECT_EQ(json["chunks"][1][1], 3);
  EXPECT_EQ(json["token_ids"].size(), 6u);
  EXPECT_EQ(json["prompt_token_ids"].size(), 6u);
  EXPECT_EQ(json["temperature"], 0.5);
  EXPECT_EQ(json["seed"], 8);
  EXPECT_EQ(json["category"], "qa");
  EXPECT_EQ(json["group"], "qa");
  EXPECT_EQ(json["speculative_decoding"]["num_draft_tokens"], 4);
  Record failed;
  failed.status = absl::UnavailableError("gone");
  EXPECT_EQ(RecordJson(failed, MakeQuestions()[0])["status"], "UNAVAILABLE");
}

TEST(ProgressTest, ShowsWhatIsKnown) {
  ProgressState state;
  state.num_done = 12;
  state.in_flight = 2;
  state.num_requests = 24;
  state.elapsed = absl::Seconds(3);
  EXPECT_EQ(ProgressText(state),
            "[###############---------------] 12/24, 2 in flight, 3 s");
  state.num_requests.reset();
  state.duration = absl::Seconds(3);
  state.num_failed = 1;
  EXPECT_EQ(ProgressText(state),
            "[##############################] 12, 2 in flight, 3 s, 1 failed");
}

}  // namespace
}  // namespace specwire::cli::bench
