// SPDX-License-Identifier: Apache-2.0
#include "coordinator/speculation_control.h"

#include <algorithm>

namespace specwire::coordinator {
namespace {

// Weight of a new observation in an average, in the long run.
constexpr double kWeight = 1.0 / 16;
// The same for times, which are noisier.
constexpr double kTimeWeight = 1.0 / 8;
// Observations before the first judgement of a spell of drafting.
constexpr int kObservations = 8;
// What a proposal's messages cost the verifier's machine at worst, as a share
// of a plain pass; drafts must earn more than that to begin, and are given up
// when they earn less than half of it.
constexpr double kOverhead = 0.08;
// How much better one kind of patience must be to replace the other.
constexpr double kPatienceMargin = 0.03;
constexpr int kLeastPause = 32;
constexpr int kMostPause = 2048;

void Blend(double value, double weight, double* average) {
  *average += weight * (value - *average);
}

void BlendTime(double seconds, double* average) {
  if (*average <= 0) {
    *average = seconds;
  } else {
    // One hiccup of the machine must not count like many passes.
    Blend(std::min(seconds, 4 * *average), kTimeWeight, average);
  }
}

}  // namespace

SpeculationControl::SpeculationControl(const SpeculationStart& start,
                                       int run_length)
    : estimates_(start.estimates),
      run_length_(std::max(run_length, 1)),
      drafting_(start.estimates.pays),
      tokens_to_attempt_(start.first_attempt) {
  waiting_ = drafting_ && RateWaiting() > RateTaking();
}

double SpeculationControl::Weight() const {
  // At first what is seen counts for more than what others have seen.
  return std::max(kWeight, 1.0 / (num_seen_ + 2));
}

void SpeculationControl::OnCompared(int matched, int compared) {
  if (compared < 1) return;
  Blend(matched > 0 ? 1 : 0, Weight(), &estimates_.first);
  // Behind a wrong token nothing is learnt.
  for (int i = 1; i < std::min(matched + 1, compared); ++i) {
    Blend(i < matched ? 1 : 0, kWeight, &estimates_.next);
  }
  ++num_seen_;
}

void SpeculationControl::OnAnswer(bool proposed) {
  Blend(proposed ? 1 : 0, Weight(), &estimates_.answered);
  if (!proposed) ++num_seen_;
}

void SpeculationControl::OnPass(int num_proposed,
                                absl::Duration verify,
                                absl::Duration wait,
                                bool was_due) {
  const double seconds = absl::ToDoubleSeconds(verify);
  if (seconds <= 0) return;
  if (num_proposed == 0 || estimates_.plain <= 0) {
    // A first pass with draft tokens tells at least what to expect at most.
    BlendTime(seconds, &estimates_.plain);
  } else {
    const double row = std::max(seconds - estimates_.plain, 0.0) / num_proposed;
    Blend(std::min(row, estimates_.plain), kTimeWeight, &estimates_.row);
  }
  if (was_due && waiting()) {
    BlendTime(absl::ToDoubleSeconds(wait), &estimates_.wait);
  }
}

void SpeculationControl::OnCommitted(int num_tokens) {
  if (drafting_) {
    if (num_seen_ >= kObservations) Judge();
    return;
  }
  tokens_to_attempt_ -= num_tokens;
  if (tokens_to_attempt_ > 0) return;
  // Another attempt. What is cheap to compare is waited for by nobody.
  drafting_ = true;
  waiting_ = false;
  num_seen_ = 0;
}

double SpeculationControl::RateWaiting() const {
  const SpeculationEstimates& now = estimates_;
  const double unit = now.plain > 0 ? now.plain : 1;
  double survival = now.first;
  double expected = 0;
  for (int i = 0; i < run_length_; ++i) {
    expected += survival;
    survival *= now.next;
  }
  return (1 + now.answered * expected) /
         (1 + (now.wait + now.answered * run_length_ * now.row) / unit);
}

double SpeculationControl::RateTaking() const {
  const SpeculationEstimates& now = estimates_;
  const double unit = now.plain > 0 ? now.plain : 1;
  const double usable = now.answered * now.first;
  double survival = 1;
  double expected = 0;
  for (int i = 0; i < run_length_; ++i) {
    expected += survival;
    survival *= now.next;
  }
  return (1 + usable * expected) /
         (1 + usable * (1 + (run_length_ - 1) * now.row / unit));
}

double SpeculationControl::predicted_speedup() const {
  return std::max(RateWaiting(), RateTaking());
}

void SpeculationControl::Judge() {
  const double needed = estimates_.pays ? 1 + kOverhead / 2 : 1 + kOverhead;
  if (predicted_speedup() < needed) {
    if (estimates_.pays) {
      estimates_.pause_tokens = kLeastPause;
    } else {
      estimates_.pause_tokens =
          std::min(2 * estimates_.pause_tokens, kMostPause);
    }
    estimates_.pays = false;
    drafting_ = false;
    tokens_to_attempt_ = estimates_.pause_tokens;
    return;
  }
  estimates_.pays = true;
  const double margin = waiting_ ? 1 - kPatienceMargin : 1 + kPatienceMargin;
  waiting_ = RateWaiting() > margin * RateTaking();
}

}  // namespace specwire::coordinator
