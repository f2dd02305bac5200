// SPDX-License-Identifier: Apache-2.0
#include "tests/exactness/toy_serving.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"

namespace specwire {
namespace {

using coordinator::Action;
using coordinator::RequestMachine;
using coordinator::RequestParams;
using verifier::TargetSampler;
using verifier::VerifySequence;

}  // namespace

// One request and all that its nodes hold.
struct ToyServing::Request {
  explicit Request(RequestParams params) : machine(std::move(params)) {}

  RequestMachine machine;
  SamplingParams sampling;
  int32_t choice = 0;
  absl::Status status;
  bool finished = false;
  Served served;
  int num_passes = 0;

  std::optional<VerifySequence> verifier;
  std::optional<TargetSampler> sampler;
  std::unique_ptr<KvSequence> kv;

  std::optional<DraftPath> path;
  std::unique_ptr<DraftSequence> drafter;
  int32_t source = 0;
};

ToyServing::ToyServing(ToyEngine* target,
                       std::vector<Drafter*> drafters,
                       ServingOptions options)
    : target_(target),
      drafters_(std::move(drafters)),
      options_(std::move(options)),
      context_{.prompt_length = static_cast<int>(options_.prompt.size()),
               .min_tokens = options_.min_tokens,
               .end_token_ids = options_.stop_token_ids} {}

bool ToyServing::Happens(double chance) {
  return chance > 0 &&
         std::uniform_real_distribution<double>(0, 1)(random_) < chance;
}

absl::StatusOr<Served> ToyServing::Generate(uint64_t seed, int32_t choice) {
  RequestParams params;
  params.prompt = options_.prompt;
  params.sampling = options_.sampling;
  params.sampling.seed = static_cast<int64_t>(seed);
  params.max_tokens = options_.num_tokens;
  params.stop_token_ids = options_.stop_token_ids;
  params.vocab_size = target_->vocab_size();
  params.max_moves = 1000;
  params.speculation = {.enabled = true,
                        .run_length = options_.run_length,
                        .window = options_.rule == AcceptanceRule::kRatio
                                      ? options_.run_length
                                      : options_.window,
                        .patience = absl::InfiniteDuration(),
                        .rule = options_.rule};
  Request request(params);
  request.sampling = params.sampling;
  request.choice = choice;
  Take(request.machine.Start(), &request);
  while (!request.finished && request.status.ok()) {
    SPECWIRE_ASSIGN_OR_RETURN(bool moved, PumpDrafter(&request));
    if (!moved && !request.finished) {
      SPECWIRE_ASSIGN_OR_RETURN(moved, PumpVerifier(&request));
    }
    if (!moved) return absl::InternalError("everybody waits");
  }
  SPECWIRE_RETURN_IF_ERROR(request.status);
  const absl::Span<const int32_t> log = request.machine.log();
  const auto text = log.subspan(options_.prompt.size());
  request.served.tokens.assign(text.begin(), text.end());
  return request.served;
}

void ToyServing::Take(std::vector<Action> actions, Request* request) {
  for (const Action& action : actions) Do(action, request);
}

void ToyServing::Do(const Action& action, Request* request) {
  if (!request->status.ok()) return;
  if (const auto* open = std::get_if<coordinator::OpenVerifier>(&action)) {
    request->status = OpenVerifier(*open, request);
  } else if (const auto* next =
                 std::get_if<coordinator::OpenDrafter>(&action)) {
    request->status = OpenDrafter(*next, request);
  } else if (const auto* send =
                 std::get_if<coordinator::SendProposal>(&action)) {
    request->status = request->verifier->OnProposal(send->proposal);
  } else if (const auto* tune =
                 std::get_if<coordinator::SendDecodeTune>(&action)) {
    verifier::VerifyTune change;
    change.patience = tune->patience;
    change.decode_until = tune->decode_until;
    request->status = request->verifier->OnTune(change);
  } else if (const auto* commit =
                 std::get_if<coordinator::SendCommit>(&action)) {
    request->status = request->path->OnCommit(commit->position, commit->tokens);
  } else if (const auto* rewind =
                 std::get_if<coordinator::SendRewind>(&action)) {
    request->status = request->path->OnRewind(rewind->position);
  } else if (std::holds_alternative<coordinator::CloseDrafter>(action)) {
    request->path.reset();
  } else if (const auto* finish =
                 std::get_if<coordinator::FinishRequest>(&action)) {
    request->finished = true;
    request->status = finish->status;
  }
}

absl::Status ToyServing::OpenVerifier(const coordinator::OpenVerifier& open,
                                      Request* request) {
  verifier::VerifyParams params;
  params.tokens = open.tokens;
  params.prompt_length = context_.prompt_length;
  params.max_tokens = options_.num_tokens;
  params.stop_token_ids = options_.stop_token_ids;
  params.source = open.source;
  params.decode_until = open.decode_until;
  params.patience = open.patience;
  params.max_draft_rows = open.max_draft_rows;
  params.rule = options_.rule;
  SPECWIRE_ASSIGN_OR_RETURN(
      request->verifier,
      VerifySequence::Open(std::move(params),
                           {.vocab_size = target_->vocab_size(),
                            .max_model_len = ToyEngine::kMaxModelLen}));
  request->sampler.emplace(
      options_.rule, request->sampling, request->choice, context_);
  request->kv = target_->NewSequence();
  return absl::OkStatus();
}

absl::Status ToyServing::OpenDrafter(const coordinator::OpenDrafter& open,
                                     Request* request) {
  request->source = open.source;
  const int window = options_.rule == AcceptanceRule::kRatio
                         ? options_.run_length
                         : options_.window;
  SPECWIRE_ASSIGN_OR_RETURN(request->path,
                            DraftPath::Open(open.tokens,
                                            context_.prompt_length,
                                            options_.run_length,
                                            window,
                                            options_.rule));
  Drafter* const drafter =
      drafters_[static_cast<size_t>(open.source - 1) % drafters_.size()];
  request->drafter = drafter->NewSequence({.sampling = request->sampling,
                                           .context = context_,
                                           .choice = request->choice,
                                           .vocab_size = target_->vocab_size(),
                                           .rule = options_.rule,
                                           .tenant_salt = {}});
  return absl::OkStatus();
}

absl::StatusOr<bool> ToyServing::PumpDrafter(Request* request) {
  if (!request->path.has_value()) return false;
  if (Happens(options_.accidents)) {
    request->path.reset();
    Take(request->machine.OnDrafterClosed(request->source,
                                          absl::UnavailableError("lost"),
                                          /*could_open=*/Happens(0.7)),
         request);
    return true;
  }
  DraftPath::Work work = request->path->NextWork();
  if (work.kind == DraftPath::Work::Kind::kNone) return false;
  if (work.kind == DraftPath::Work::Kind::kDraft) {
    SPECWIRE_ASSIGN_OR_RETURN(
        DraftRun run,
        request->drafter->Propose(request->path->path(), work.limits));
    request->path->OnDrafted(std::move(run));
    return true;
  }
  work.proposal.source = request->source;
  if (is_late_ != nullptr && !work.proposal.tokens.empty() &&
      is_late_(work.proposal)) {
    request->path.reset();
    Take(request->machine.OnDrafterClosed(request->source,
                                          absl::UnavailableError("late"),
                                          /*could_open=*/false),
         request);
    return true;
  }
  Take(request->machine.OnProposal(work.proposal), request);
  return true;
}

absl::StatusOr<bool> ToyServing::PumpVerifier(Request* request) {
  VerifySequence& verify = *request->verifier;
  const absl::Time now = absl::UnixEpoch();
  if (verify.NextAt(now).kind != VerifySequence::Next::Kind::kRun) return false;
  // The steps of verifier_node's engine thread.
  const int max_rows = Happens(options_.accidents) ? 1 : kMaxProposalTokens;
  const absl::Span<const int32_t> draft = verify.BeginStep(max_rows);
  std::vector<int32_t> tokens(verify.log().begin() + request->kv->length(),
                              verify.log().end());
  tokens.insert(tokens.end(), draft.begin(), draft.end());
  const ForwardRun run = {.kv = request->kv.get(),
                          .tokens = tokens,
                          .num_logits = static_cast<int>(draft.size()) + 1};
  SPECWIRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                            target_->Forward(absl::MakeConstSpan(&run, 1)));
  const verifier::StepRows rows = {
      .log = verify.log(), .draft = draft, .q = verify.step_q()};
  SPECWIRE_ASSIGN_OR_RETURN(
      const std::vector<int32_t> target,
      decide_ == nullptr
          ? request->sampler->Decide(logits, rows)
          : decide_(&*request->sampler,
                    logits,
                    rows,
                    static_cast<uint64_t>(request->sampling.seed)));
  const Commit commit = verify.FinishStep(target, now);
  request->kv->Truncate(static_cast<int>(verify.log().size()) - 1);
  if (Happens(options_.accidents)) {
    // The commit never arrives.
    Take(request->machine.OnVerifierClosed(absl::UnavailableError("lost"),
                                           /*could_open=*/true),
         request);
    return true;
  }
  if (request->num_passes++ == 0) {
    request->served.num_proposed = commit.num_proposed;
    request->served.num_accepted = commit.num_accepted;
  }
  Take(request->machine.OnCommit(commit), request);
  // After drafters were lost, one may come back.
  if (!request->finished &&
      (is_late_ != nullptr || Happens(options_.accidents))) {
    Take(request->machine.OnDrafterAvailable(), request);
  }
  return true;
}

}  // namespace specwire
