// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/local_drafter.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/drafting/draft_path.h"
#include "common/drafting/drafter_names.h"

namespace specwire::verifier {
namespace {

// About what a small model achieves where a lookup finds nothing.
constexpr double kUsualChance = 0.45;
// How fast the estimates follow: of a sequence, of all of them, of times.
constexpr double kChanceRate = 0.05;
constexpr double kCommonChanceRate = 0.01;
constexpr double kTimeRate = 0.1;
// A sequence for which the model does not draft forgets so much of its estimate
// with each commit, so that it is tried again in time.
constexpr double kForget = 0.01;
// The same of the model's time, which is measured only while it drafts.
constexpr double kForgetTime = 0.001;
// The fastest of the first few passes is what one takes.
constexpr int kFirstPasses = 8;
// More tokens than this are a text to be read first.
constexpr int kMaxBehind = 16;
// Rows from which a pass tells what rows cost, and up to which it tells what a
// pass costs, where each row adds this part.
constexpr int kManyRows = 64;
constexpr int kFewRows = 8;
constexpr double kRowPart = 0.1;
// Until it was measured, a row of a long text takes this part of a pass.
constexpr double kReadRowPart = 0.1;
// A sequence is expected to go on for as many tokens as it has generated, but
// for so many at least.
constexpr int kLeastTokensAhead = 32;

void Approach(double value, double rate, double* estimate) {
  *estimate += rate * (value - *estimate);
}

// A single odd time says little.
void LearnSeconds(double seconds, double* estimate) {
  if (*estimate == 0) {
    *estimate = seconds;
  } else {
    Approach(std::min(seconds, 2 * *estimate), kTimeRate, estimate);
  }
}

}  // namespace

LocalDrafter::LocalDrafter(std::unique_ptr<SuffixDrafter> lookup,
                           std::unique_ptr<Drafter> model,
                           const Clock* clock)
    : name_(model == nullptr ? kSuffixDrafter : kHybridDrafter),
      lookup_(std::move(lookup)),
      model_(std::move(model)),
      clock_(clock),
      chances_({.first = kUsualChance, .next = kUsualChance}) {}

std::unique_ptr<LocalSequence> LocalDrafter::NewSequence(
    const DraftSequenceParams& params) {
  auto sequence = std::make_unique<LocalSequence>();
  sequence->lookup_ = lookup_->NewSuffixSequence(params);
  sequence->prompt_length_ = params.context.prompt_length;
  sequence->chances_ = chances_;
  if (model_ != nullptr && params.rule == AcceptanceRule::kCoupled) {
    sequence->model_ = model_->NewSequence(params);
  }
  return sequence;
}

DraftRun LocalDrafter::LookUp(absl::Span<const int32_t> log,
                              const DraftLimits& limits,
                              LocalSequence* sequence) {
  sequence->work_ = LocalSequence::Work::kNone;
  return sequence->lookup_->Look(log, limits);
}

void LocalDrafter::PassTime::Learn(double measured) {
  if (num_seen > 0 && num_seen < kFirstPasses) {
    seconds = std::min(seconds, measured);
  } else {
    LearnSeconds(measured, &seconds);
  }
  ++num_seen;
}

double LocalDrafter::PassTime::For(int num_sequences) const {
  return seconds * (1 + kRowPart * (num_sequences - 1));
}

double LocalDrafter::PriceOf(bool first,
                             int num_sequences,
                             const LocalPrices& prices) {
  return pass_time(first).For(num_sequences) * prices.tokens_per_second;
}

float LocalDrafter::Plan(const LocalPlace& place,
                         const DraftRun& found,
                         const LocalPrices& prices,
                         LocalSequence* sequence) {
  if (sequence->model_ == nullptr || prices.tokens_per_second <= 0) return 0;
  LocalChances& chances = sequence->chances_;
  Approach(chances_.first, kForget, &chances.first);
  Approach(chances_.next, kForget, &chances.next);
  const int length = static_cast<int>(place.log.size());
  const int longest = model_->max_model_len();
  const int max_tokens = longest > 0
                             ? std::min(place.max_tokens, longest - length)
                             : place.max_tokens;
  const double row_price = prices.row_seconds * prices.tokens_per_second;
  // All that decode side by side may share the model's passes.
  const int sharing = std::max(prices.num_sequences, 1);
  const double first_row_price =
      prices.first_row_seconds * prices.tokens_per_second / sharing;
  double gain = -first_row_price;
  double expected = 0;
  double survival = 1;
  for (int i = 0; i < max_tokens; ++i) {
    survival *= chances.of(i == 0);
    const double draft_price = PriceOf(i == 0, sharing, prices) / sharing;
    if (survival <= draft_price + row_price) break;
    gain += survival - draft_price - row_price;
    expected += survival - draft_price;
  }
  double gain_of_found = -first_row_price;
  for (const float chance : found.survival) {
    gain_of_found += std::max(static_cast<double>(chance) - row_price, 0.0);
  }
  gain -= std::max(gain_of_found, 0.0);
  if (gain <= 0) {
    first_pass_.seconds *= 1 - kForgetTime;
    next_pass_.seconds *= 1 - kForgetTime;
    return 0;
  }
  const int behind = length - sequence->num_read_;
  if (behind <= kMaxBehind) {
    sequence->work_ = LocalSequence::Work::kDraft;
    return static_cast<float>(expected);
  }
  const int ahead =
      std::min(std::max(length - sequence->prompt_length_, kLeastTokensAhead),
               place.tokens_left);
  const double row_seconds = read_row_seconds_ > 0
                                 ? read_row_seconds_
                                 : kReadRowPart * first_pass_.seconds;
  const double read_price = behind * row_seconds * prices.tokens_per_second;
  if (gain * ahead > read_price) sequence->work_ = LocalSequence::Work::kRead;
  return 0;
}

void LocalDrafter::Draft(absl::Span<LocalTask> tasks,
                         const LocalPrices& prices) {
  std::vector<Active> reading;
  std::vector<Active> drafting;
  for (LocalTask& task : tasks) {
    Active one = {.task = &task};
    one.path.assign(task.log.begin(), task.log.end());
    const bool reads = task.sequence->work_ == LocalSequence::Work::kRead;
    task.sequence->work_ = LocalSequence::Work::kNone;
    (reads ? reading : drafting).push_back(std::move(one));
  }
  bool first = true;
  if (!reading.empty()) {
    RunPass(first, &reading);
    first = false;
    // Those that are through have their first token.
    std::move(reading.begin(), reading.end(), std::back_inserter(drafting));
  }
  while (!drafting.empty() && Pays(first, prices, &drafting)) {
    RunPass(first, &drafting);
    first = false;
  }
}

bool LocalDrafter::Pays(bool first,
                        const LocalPrices& prices,
                        std::vector<Active>* active) {
  const double row_price = prices.row_seconds * prices.tokens_per_second;
  double gain = 0;
  const auto is_worth_no_row = [&](const Active& one) {
    const double more = one.survival * one.task->sequence->chances_.of(
                                           one.task->run.tokens.empty()) -
                        row_price;
    gain += std::max(more, 0.0);
    return more <= 0;
  };
  active->erase(std::remove_if(active->begin(), active->end(), is_worth_no_row),
                active->end());
  if (active->empty()) return false;
  const int num_sequences = static_cast<int>(active->size());
  double price = PriceOf(first, num_sequences, prices);
  if (first) price += prices.first_row_seconds * prices.tokens_per_second;
  return gain > price;
}

void LocalDrafter::RunPass(bool first, std::vector<Active>* active) {
  const auto most = static_cast<size_t>(std::max(model_->max_batch(), 1));
  if (active->size() > most) active->resize(most);
  std::vector<DraftTask> tasks;
  for (const Active& one : *active) {
    tasks.push_back({.sequence = one.task->sequence->model_.get(),
                     .path = one.path,
                     .limits = {.max_tokens = 1}});
  }
  const absl::Status status = CallModel(first, absl::MakeSpan(tasks));
  std::vector<Active> rest;
  for (size_t i = 0; i < tasks.size(); ++i) {
    Active& one = (*active)[i];
    absl::Status failure = status;
    if (failure.ok() && tasks[i].result.has_value()) {
      failure = tasks[i].result->status();
      if (failure.ok()) failure = CheckRun(**tasks[i].result, tasks[i].limits);
    }
    if (!failure.ok()) {
      // It goes on with the lookup alone.
      SPECWIRE_LOG(Warning, "local drafts: ", failure.message());
      one.task->sequence->model_.reset();
      one.task->run = {};
    } else if (TakeToken(tasks[i], &one)) {
      rest.push_back(std::move(one));
    }
  }
  *active = std::move(rest);
}

absl::Status LocalDrafter::CallModel(bool first, absl::Span<DraftTask> tasks) {
  const absl::Time start = clock_->Now();
  try {
    const DraftPass pass = model_->Propose(tasks);
    LearnTime(first, pass, clock_->Now() - start);
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("the drafter failed: ", error.what()));
  } catch (...) {
    return absl::InternalError("the drafter failed");
  }
}

bool LocalDrafter::TakeToken(const DraftTask& result, Active* active) {
  // There is more to read, before the next step.
  if (!result.result.has_value()) return false;
  LocalTask& task = *active->task;
  LocalSequence& sequence = *task.sequence;
  const DraftRun& token = **result.result;
  // No room, in its cache or in its context.
  if (token.tokens.empty() || token.survival.empty()) return false;
  sequence.num_read_ = static_cast<int>(task.log.size());
  const double chance = static_cast<double>(token.survival[0]);
  const bool is_first = task.run.tokens.empty();
  Approach(chance, kChanceRate, &sequence.chances_.of(is_first));
  Approach(chance, kCommonChanceRate, &chances_.of(is_first));
  active->survival *= chance;
  active->path.push_back(token.tokens[0]);
  task.run.tokens.push_back(token.tokens[0]);
  task.run.survival.push_back(static_cast<float>(active->survival));
  return static_cast<int>(task.run.tokens.size()) < task.max_tokens;
}

void LocalDrafter::LearnTime(bool first,
                             const DraftPass& pass,
                             absl::Duration time) {
  const double seconds = absl::ToDoubleSeconds(time);
  if (pass.num_rows >= kManyRows) {
    LearnSeconds(seconds / pass.num_rows, &read_row_seconds_);
  } else if (pass.num_rows >= 1 && pass.num_rows <= kFewRows) {
    pass_time(first).Learn(seconds / (1 + kRowPart * (pass.num_rows - 1)));
  }
}

}  // namespace specwire::verifier
