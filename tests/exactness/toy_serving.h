// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/draft_path.h"
#include "common/drafting/drafter.h"
#include "coordinator/request_machine.h"
#include "tests/exactness/toy_engine.h"
#include "verifier_node/target_sampler.h"
#include "verifier_node/verify_sequence.h"

namespace specwire {

// How the texts of a test are generated.
struct ServingOptions {
  AcceptanceRule rule = AcceptanceRule::kCoupled;
  SamplingParams sampling;
  std::vector<int32_t> prompt = {1, 2, 0};
  int num_tokens = 5;
  int min_tokens = 0;
  // Tokens that end a text before min_tokens are masked; none is drawn later.
  std::vector<int32_t> stop_token_ids;
  int run_length = 3;
  // Coupled rule: how far the drafter works ahead.
  int window = 3;
  // Chance of each accident at each step: a pass with fewer rows than are
  // pending, a verifier lost with a commit under way, a drafter lost for good
  // or replaced.
  double accidents = 0;
};

// A text.
struct Served {
  std::vector<int32_t> tokens;
  // Of the first pass.
  int num_proposed = 0;
  int num_accepted = 0;
};

// What serves a request, without threads, sockets and clock: the drafter, its
// DraftPath, the RequestMachine, the VerifySequence and the TargetSampler, each
// message handed over at once. A test may put its own in place of the parts
// that decide.
//
// Thread safety: one thread at a time.
// Lifetime: engine and drafters must outlive it.
class ToyServing {
 public:
  using Decide = std::function<absl::StatusOr<std::vector<int32_t>>(
      verifier::TargetSampler* sampler,
      absl::Span<const float> logits,
      const verifier::StepRows& rows,
      uint64_t seed)>;
  // True if this proposal comes too late: the verifier goes on without a
  // drafter for one pass.
  using IsLate = std::function<bool(const Proposal&)>;

  // A lost drafter's place is taken by the next one, from the first on again.
  ToyServing(ToyEngine* target,
             std::vector<Drafter*> drafters,
             ServingOptions options);

  void set_decide(Decide decide) { decide_ = std::move(decide); }
  void set_is_late(IsLate is_late) { is_late_ = std::move(is_late); }

  // INTERNAL if a part fails or all wait for one another.
  absl::StatusOr<Served> Generate(uint64_t seed, int32_t choice = 0);

 private:
  struct Request;

  bool Happens(double chance);
  void Do(const coordinator::Action& action, Request* request);
  absl::Status OpenVerifier(const coordinator::OpenVerifier& open,
                            Request* request);
  absl::Status OpenDrafter(const coordinator::OpenDrafter& open,
                           Request* request);
  // False if the drafter has nothing to do.
  absl::StatusOr<bool> PumpDrafter(Request* request);
  absl::StatusOr<bool> PumpVerifier(Request* request);
  void Take(std::vector<coordinator::Action> actions, Request* request);

  ToyEngine* const target_;
  const std::vector<Drafter*> drafters_;
  const ServingOptions options_;
  const SequenceContext context_;
  Decide decide_;
  IsLate is_late_;
  // Of the accidents; knows nothing of the seeds.
  std::mt19937 random_{20261};
};

}  // namespace specwire
