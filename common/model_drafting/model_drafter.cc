// SPDX-License-Identifier: Apache-2.0
#include "common/model_drafting/model_drafter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_names.h"
#include "common/model_drafting/pass_rows.h"
#include "common/text/tokenizer.h"

namespace specwire {
namespace {

// Whether its cache can be dropped in this pass: it has one, and no part in it.
bool IsIdle(const ModelSequence& sequence, int64_t pass) {
  return sequence.last_pass() < pass && sequence.num_blocks() > 0;
}

absl::StatusOr<std::string> FingerprintOf(const Engine& engine) {
  const auto& draft = engine.info().draft;
  if (draft.has_value()) return draft->vocabulary_fingerprint;
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                            Tokenizer::Create(engine.tokenizer_model()));
  return tokenizer->fingerprint();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelDrafter>> ModelDrafter::Create(
    std::unique_ptr<Engine> engine, ModelDrafterOptions options) {
  SPECWIRE_ASSIGN_OR_RETURN(std::string fingerprint, FingerprintOf(*engine));
  if (engine->info().draft.has_value() && options.name != kModelDrafter) {
    return absl::InvalidArgumentError(
        absl::StrCat("the drafter ",
                     options.name,
                     " needs the target's own file, and ",
                     engine->info().name,
                     " is a draft model"));
  }
  if (options.name == kAdversarialDrafter && engine->info().vocab_size < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the drafter ", options.name, " needs a vocabulary of 2 tokens"));
  }
  // The constructor is private.
  return std::unique_ptr<ModelDrafter>(new ModelDrafter(
      std::move(engine), std::move(options), std::move(fingerprint)));
}

ModelDrafter::ModelDrafter(std::unique_ptr<Engine> engine,
                           ModelDrafterOptions options,
                           std::string fingerprint)
    : engine_(std::move(engine)),
      options_(std::move(options)),
      vocabulary_fingerprint_(std::move(fingerprint)),
      head_(engine_->info().head_token_ids()) {}

AcceptanceEstimate* ModelDrafter::EstimateFor(
    const DraftSequenceParams& params) {
  // The oracle is right, and the adversary wrong, by their own account.
  if (options_.name != kModelDrafter) return nullptr;
  if (params.rule == AcceptanceRule::kRatio) return &ratio_estimate_;
  return params.sampling.temperature < kGreedyTemperature ? &greedy_estimate_
                                                          : &coupled_estimate_;
}

std::unique_ptr<DraftSequence> ModelDrafter::NewSequence(
    const DraftSequenceParams& params) {
  std::unique_ptr<TokenChooser> chooser;
  if (options_.name == kAdversarialDrafter) {
    chooser = MakeAdversarialChooser(params, engine_->info().vocab_size);
  } else if (params.rule == AcceptanceRule::kRatio) {
    chooser = MakeRatioChooser(params, &head_);
  } else if (options_.name == kOracleDrafter) {
    chooser = MakeOracleChooser(params);
  } else {
    chooser = MakeCoupledChooser(params, &head_);
  }
  return std::make_unique<ModelSequence>(this,
                                         engine_.get(),
                                         params,
                                         std::move(chooser),
                                         EstimateFor(params),
                                         &sequences_);
}

DraftPass ModelDrafter::Propose(absl::Span<DraftTask> tasks) {
  ++num_passes_;
  std::vector<Step> steps = PlanSteps(tasks);
  DraftPass pass;
  for (const Step& step : steps) {
    ++pass.num_sequences;
    pass.num_rows += static_cast<int>(step.rows.tokens.size());
  }
  if (!steps.empty()) Compute(absl::MakeSpan(steps));
  return pass;
}

std::vector<ModelDrafter::Step> ModelDrafter::PlanSteps(
    absl::Span<DraftTask> tasks) {
  std::vector<Step> active;
  for (DraftTask& task : tasks) {
    auto* const sequence = static_cast<ModelSequence*>(task.sequence);
    sequence->Begin(task.path, task.limits, num_passes_);
    active.push_back({.task = &task, .sequence = sequence});
  }
  int64_t promised = 0;
  const auto ends = [&](const Step& step) {
    ModelSequence* const sequence = step.sequence;
    if (!sequence->complete() && MakeRoom(*sequence, &promised)) return false;
    // What leads to no token is of no use to anybody.
    if (sequence->run_length() == 0) sequence->DropCache();
    step.task->result = sequence->End();
    return true;
  };
  active.erase(std::remove_if(active.begin(), active.end(), ends),
               active.end());
  if (active.empty()) return active;

  std::vector<int> behind;
  for (const Step& step : active) behind.push_back(step.sequence->behind());
  const std::vector<int> rows = PlanRows(behind);
  std::vector<Step> steps;
  // So that `best` stays where it is.
  steps.reserve(active.size());
  for (size_t i = 0; i < active.size(); ++i) {
    if (rows[i] == 0) continue;
    Step& step = steps.emplace_back(active[i]);
    step.rows = step.sequence->Rows(rows[i], &step.best);
  }
  return steps;
}

bool ModelDrafter::MakeRoom(const ModelSequence& sequence, int64_t* promised) {
  if (sequence.length() > engine_->info().max_model_len) return false;
  const int64_t needed = *promised + sequence.blocks_needed();
  int64_t available = num_free_blocks();
  for (const ModelSequence* other : sequences_) {
    if (needed <= available) break;
    if (IsIdle(*other, num_passes_)) available += other->num_blocks();
  }
  if (needed > available) return false;
  while (needed > num_free_blocks()) {
    ModelSequence* least = nullptr;
    for (ModelSequence* other : sequences_) {
      if (IsIdle(*other, num_passes_) &&
          (least == nullptr || other->last_pass() < least->last_pass())) {
        least = other;
      }
    }
    // Blocks that several share are not as many as it seemed.
    if (least == nullptr) return false;
    least->DropCache();
  }
  *promised = needed;
  return true;
}

void ModelDrafter::Compute(absl::Span<Step> steps) {
  std::vector<ForwardRun> runs;
  for (const Step& step : steps) runs.push_back(step.rows);
  const auto logits = engine_->Forward(runs);
  if (!logits.ok()) {
    if (steps.size() == 1) return OnError(&steps[0], logits.status());
    // Whose fault it is shows when each is alone.
    for (Step& step : steps) Compute(absl::MakeSpan(&step, 1));
    return;
  }
  const auto num_logits = static_cast<size_t>(engine_->info().num_logits());
  size_t begin = 0;
  for (Step& step : steps) {
    if (step.rows.num_logits == 0) continue;
    const size_t size = step.rows.best.empty() ? num_logits : 0;
    OnLogits(&step, logits->subspan(begin, size));
    begin += size;
  }
}

void ModelDrafter::OnLogits(Step* step, absl::Span<const float> logits) {
  const absl::StatusOr<bool> goes_on =
      step->sequence->Take({.logits = logits, .best = step->best});
  if (!goes_on.ok()) {
    OnError(step, goes_on.status());
  } else if (!*goes_on) {
    step->task->result = step->sequence->End();
  }
}

void ModelDrafter::OnError(Step* step, const absl::Status& status) {
  // What was drawn under the ratio rule has led here, so it must not be taken
  // back; and a lack of room is no error.
  if (step->sequence->run_length() > 0 || absl::IsResourceExhausted(status)) {
    step->task->result = step->sequence->End();
  } else {
    step->task->result = status;
  }
}

}  // namespace specwire
