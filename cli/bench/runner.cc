// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/runner.h"

#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/bench/plan.h"
#include "cli/bench/progress.h"
#include "cli/interrupt.h"
#include "cli/request_flags.h"
#include "common/base/random_id.h"
#include "common/base/signals.h"
#include "common/base/status_macros.h"

namespace specwire::cli::bench {
namespace {

// Of a worker whose request failed.
constexpr absl::Duration kPauseAfterFailure = absl::Milliseconds(100);
// A run in which everything fails ends soon.
constexpr int kGiveUpAfter = 20;

constexpr int64_t kWarmupBlock = -1;

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return absl::ToDoubleSeconds(absl::DurationFromTimeval(usage.ru_utime) +
                               absl::DurationFromTimeval(usage.ru_stime));
}

// The run as it goes on.
class BlockRunner {
 public:
  BlockRunner(const Options& options,
              const std::vector<Question>& questions,
              const std::vector<LoadGenerator::Stub*>& stubs,
              RequestMaker* maker)
      : options_(options),
        plan_(options, static_cast<int64_t>(questions.size())),
        progress_(stderr),
        load_(MakeSettings(questions, stubs, maker)) {}

  RunResult Run() {
    const OnInterrupt interrupt([this] {
      // In the watching thread alone, so that a second signal arrives there and
      // ends the program.
      UnblockShutdownSignals();
      load_.Stop();
    });
    WarmUp();
    start_ = load_.Now();
    const double cpu_s = CpuSeconds();
    for (int64_t i = 0; i < plan_.num_blocks() && !IsOver(); ++i) {
      RunPair(plan_.block(i));
    }
    result_.client_cpu_s = CpuSeconds() - cpu_s;
    result_.started = absl::Now() - load_.Now();
    result_.interrupted = interrupt.interrupted();
    result_.gave_up = load_.stopped() && !result_.interrupted;
    return std::move(result_);
  }

 private:
  LoadGenerator::Settings MakeSettings(
      const std::vector<Question>& questions,
      const std::vector<LoadGenerator::Stub*>& stubs,
      RequestMaker* maker) {
    LoadGenerator::Settings settings;
    settings.stubs = stubs;
    settings.make_request = [maker](const Record& record) {
      return maker->Make(record);
    };
    settings.num_questions = questions.size();
    if (options_.deadline_ms) {
      settings.deadline = absl::Milliseconds(*options_.deadline_ms);
    }
    settings.give_up_after = std::max(kGiveUpAfter, 2 * options_.num_workers());
    settings.on_progress =
        [this](int64_t num_done, int64_t num_failed, int64_t in_flight) {
          ShowProgress(num_done, num_failed, in_flight);
        };
    return settings;
  }

  void WarmUp() {
    result_.num_warmup = options_.warmup;
    const int workers = std::min(options_.warmup, options_.max_in_flight());
    std::vector<Record> dropped;
    for (Mode mode : options_.modes) {
      const std::unique_ptr<Pacer> pacer =
          MakeClosedLoop(workers, kPauseAfterFailure);
      load_.Run(
          {kWarmupBlock, mode, 0, options_.warmup}, pacer.get(), &dropped);
    }
  }

  void RunPair(const Plan::Block& planned) {
    for (Mode mode : planned.modes) {
      if (load_.stopped()) return;
      LoadGenerator::Block block{
          planned.number, mode, planned.begin, planned.end};
      // Pairs are run to their end.
      if (options_.duration_s && options_.modes.size() == 1) {
        block.duration = absl::Seconds(*options_.duration_s);
      }
      const std::unique_ptr<Pacer> pacer = MakePacer(planned.number);
      BlockRun run;
      run.number = planned.number;
      run.mode = mode;
      run.wall = load_.Run(block, pacer.get(), &result_.records);
      run.complete = !load_.stopped();
      result_.blocks.push_back(run);
    }
  }

  // Both modes of a block have the same arrivals.
  std::unique_ptr<Pacer> MakePacer(int64_t block) const {
    if (!options_.rate) {
      return MakeClosedLoop(options_.num_workers(), kPauseAfterFailure);
    }
    const uint64_t seed =
        static_cast<uint64_t>(options_.seed) + static_cast<uint64_t>(block);
    return MakeOpenLoop(
        Arrivals(*options_.rate, options_.burstiness.value_or(1), seed),
        options_.max_in_flight());
  }

  bool IsOver() const {
    return load_.stopped() ||
           (options_.duration_s &&
            load_.Now() - start_ >= absl::Seconds(*options_.duration_s));
  }

  void ShowProgress(int64_t num_done, int64_t num_failed, int64_t in_flight) {
    ProgressState state;
    state.num_done = num_done;
    state.num_failed = num_failed;
    state.in_flight = in_flight;
    const int64_t num_modes = static_cast<int64_t>(options_.modes.size());
    if (plan_.num_requests() != Plan::kUnlimited) {
      state.num_requests = num_modes * (plan_.num_requests() + options_.warmup);
    }
    state.elapsed = load_.Now();
    if (options_.duration_s) {
      state.duration = absl::Seconds(*options_.duration_s);
    }
    progress_.Update(state);
  }

  const Options& options_;
  const Plan plan_;
  Progress progress_;
  RunResult result_;
  LoadGenerator load_;
  // When the first block began.
  absl::Duration start_;
};

}  // namespace

absl::StatusOr<RequestMaker> RequestMaker::Create(
    const Options& options, const std::vector<Question>* questions) {
  RequestFlags flags;
  flags.model = options.model;
  flags.max_tokens = options.max_tokens;
  flags.temperature = options.temperature;
  flags.ignore_eos = options.ignore_eos;
  flags.drafter = options.drafter;
  flags.max_draft_tokens = options.max_draft_tokens;
  flags.patience_us = options.patience_us;
  flags.window = options.window;
  RequestMaker maker;
  SPECWIRE_ASSIGN_OR_RETURN(maker.pattern_, specwire::cli::MakeRequest(flags));
  maker.questions_ = questions;
  maker.seed_ = options.seed;
  maker.share_prefixes_ = options.share_prefixes;
  maker.salt_ = RandomHexId(8);
  return maker;
}

v1::GenerateRequest RequestMaker::Make(const Record& record) {
  v1::GenerateRequest request = pattern_;
  v1::ChatMessage* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content((*questions_)[record.question].text);
  request.mutable_sampling()->set_seed(static_cast<int64_t>(
      static_cast<uint64_t>(seed_) + static_cast<uint64_t>(record.index)));
  if (record.mode == Mode::kPlain) {
    request.mutable_speculation()->Clear();
    request.mutable_speculation()->set_enabled(false);
  }
  ++num_made_;
  request.set_cache_salt(share_prefixes_
                             ? absl::StrCat(salt_, "/", ModeName(record.mode))
                             : absl::StrCat(salt_, "/", num_made_));
  return request;
}

RunResult RunBlocks(const Options& options,
                    const std::vector<Question>& questions,
                    const std::vector<LoadGenerator::Stub*>& stubs,
                    RequestMaker maker) {
  BlockRunner runner(options, questions, stubs, &maker);
  return runner.Run();
}

}  // namespace specwire::cli::bench
