// SPDX-License-Identifier: Apache-2.0
#include "draft_node/hybrid_drafter.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "common/base/common_length.h"

namespace specwire::draft {
namespace {

// Each run makes what was seen before count so much less.
constexpr double kFade = 0.95;

double Sum(absl::Span<const float> survival) {
  double sum = 0;
  for (const float value : survival) sum += static_cast<double>(value);
  return sum;
}

}  // namespace

void RunExpectation::OnAnswer(bool empty) {
  answered_ = kFade * answered_ + (empty ? 0 : 1);
  asked_ = kFade * asked_ + 1;
}

void RunExpectation::OnJudged(int num_accepted, bool rejected) {
  accepted_ = kFade * accepted_ + num_accepted;
  judged_ = kFade * judged_ + num_accepted + (rejected ? 1 : 0);
}

double RunExpectation::Tokens(int max_tokens) const {
  const double chance = accepted_ / judged_;
  double survival = answered_ / asked_;
  double tokens = 0;
  for (int i = 0; i < max_tokens; ++i) {
    survival *= chance;
    tokens += survival;
  }
  return tokens;
}

class HybridDrafter::Sequence final : public DraftSequence {
 public:
  Sequence(HybridDrafter* drafter, const DraftSequenceParams& params)
      : drafter_(drafter),
        lookup_(drafter->lookup_->NewSuffixSequence(params)),
        model_(drafter->model_->NewSequence(params)) {}

  absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                   const DraftLimits& limits) override {
    DraftTask task = {.sequence = this, .path = path, .limits = limits};
    while (!task.result.has_value()) {
      drafter_->Propose(absl::MakeSpan(&task, 1));
    }
    return *std::move(task.result);
  }

  // The lookup's run, if that is to be taken. Once the model works on a path,
  // it is left to it.
  std::optional<DraftRun> Choose(absl::Span<const int32_t> path,
                                 const DraftLimits& limits) {
    const size_t common = CommonLength(lookup_->text(), path);
    const bool same = common == path.size() && common == lookup_->text().size();
    if (model_works_ && same) return std::nullopt;
    // Runs that were made behind a wrong token say nothing.
    while (!runs_.empty() && runs_.back().begin > common) runs_.pop_back();
    DraftRun run = lookup_->Look(path, limits);
    JudgeRuns(path);
    const int room = std::min(limits.max_tokens, Room(path));
    model_works_ = room > 0 && Sum(run.survival) < expectation_.Tokens(room);
    if (model_works_) return std::nullopt;
    lookup_->Expect(path, run.tokens);
    return run;
  }

  // What the model is to be asked.
  DraftTask ModelTask(const DraftTask& task) const {
    DraftTask result = {
        .sequence = model_.get(), .path = task.path, .limits = task.limits};
    result.limits.max_tokens =
        std::min(result.limits.max_tokens, Room(task.path));
    return result;
  }

  // What it says; nothing at all is the lookup's turn.
  absl::StatusOr<DraftRun> OnModelResult(const DraftTask& task,
                                         absl::StatusOr<DraftRun> run) {
    model_works_ = false;
    if (!run.ok()) return run;
    const bool empty = run->tokens.empty() && !run->more;
    expectation_.OnAnswer(empty);
    if (empty) {
      run = lookup_->Look(task.path, task.limits);
    } else {
      runs_.push_back({.begin = task.path.size(), .tokens = run->tokens});
    }
    lookup_->Expect(task.path, run->tokens);
    return run;
  }

 private:
  // A run of the model of which it is not known yet how it ended.
  struct ModelRun {
    size_t begin = 0;
    std::vector<int32_t> tokens;
  };

  // Tokens that fit into the model's context behind `path`.
  int Room(absl::Span<const int32_t> path) const {
    const int longest = drafter_->model_->max_model_len();
    if (longest <= 0) return kMaxRoom;
    return std::max(longest - static_cast<int>(path.size()), 0);
  }

  // Learns from those runs whose end shows in the path.
  void JudgeRuns(absl::Span<const int32_t> path) {
    while (!runs_.empty()) {
      const ModelRun& run = runs_.front();
      const size_t settled =
          lookup_->settled() - std::min(lookup_->settled(), run.begin);
      size_t accepted = 0;
      const size_t size = std::min(settled, run.tokens.size());
      while (accepted < size &&
             path[run.begin + accepted] == run.tokens[accepted]) {
        ++accepted;
      }
      const bool rejected = accepted < size;
      if (!rejected && accepted < run.tokens.size()) return;
      expectation_.OnJudged(static_cast<int>(accepted), rejected);
      // What was behind a wrong token says nothing.
      if (rejected) {
        runs_.clear();
      } else {
        runs_.pop_front();
      }
    }
  }

  static constexpr int kMaxRoom = 1 << 20;

  HybridDrafter* const drafter_;
  const std::unique_ptr<SuffixSequence> lookup_;
  const std::unique_ptr<DraftSequence> model_;
  RunExpectation expectation_;
  std::deque<ModelRun> runs_;
  // It was asked for a run behind the lookup's text.
  bool model_works_ = false;
};

HybridDrafter::HybridDrafter(std::unique_ptr<SuffixDrafter> lookup,
                             std::unique_ptr<Drafter> model)
    : lookup_(std::move(lookup)), model_(std::move(model)) {}

std::unique_ptr<DraftSequence> HybridDrafter::NewSequence(
    const DraftSequenceParams& params) {
  return std::make_unique<Sequence>(this, params);
}

DraftPass HybridDrafter::Propose(absl::Span<DraftTask> tasks) {
  bool answered = false;
  for (DraftTask& task : tasks) {
    std::optional<DraftRun> run =
        static_cast<Sequence*>(task.sequence)->Choose(task.path, task.limits);
    if (!run.has_value()) continue;
    task.result = *std::move(run);
    answered = true;
  }
  return answered ? DraftPass() : RunModel(tasks);
}

DraftPass HybridDrafter::RunModel(absl::Span<DraftTask> tasks) {
  std::vector<DraftTask> model_tasks;
  for (const DraftTask& task : tasks) {
    model_tasks.push_back(
        static_cast<Sequence*>(task.sequence)->ModelTask(task));
  }
  const DraftPass pass = model_->Propose(absl::MakeSpan(model_tasks));
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (!model_tasks[i].result.has_value()) continue;
    tasks[i].result =
        static_cast<Sequence*>(tasks[i].sequence)
            ->OnModelResult(tasks[i], *std::move(model_tasks[i].result));
  }
  return pass;
}

}  // namespace specwire::draft
