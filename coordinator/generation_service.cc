// SPDX-License-Identifier: Apache-2.0
#include "coordinator/generation_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/base/draining.h"
#include "common/base/retry_delay.h"
#include "common/base/stable_hash.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_names.h"
#include "common/rpc/convert.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/status.h"
#include "coordinator/access.h"
#include "coordinator/request_validation.h"
#include "coordinator/score.h"

namespace specwire::coordinator {
namespace {

// What verifiers are told of a user: not the digest of a key.
std::string ShareOf(absl::string_view user) {
  return absl::StrCat(absl::Hex(StableHash(user), absl::kZeroPad16));
}

// Requests that wait to be tokenized: any number that runs at once may come at
// once, but one may have kMaxMessageBytes.
constexpr size_t kMaxQueuedWork = 1 << 16;
constexpr size_t kMaxQueuedWorkBytes = size_t{256} << 20;
constexpr size_t kMaxQueuedUnaryWork = 64;
constexpr size_t kMaxQueuedUnaryBytes = size_t{64} << 20;
// Texts that are scored at once, and that wait for it.
constexpr int kNumScoreWorkers = 4;
constexpr size_t kMaxQueuedScores = 64;
constexpr int kMaxDetokenizeIds = 1 << 20;
// For whoever finds the coordinator full.
constexpr absl::Duration kRetryDelay = absl::Seconds(1);

// For calls that are refused at once.
class RefusedHandler final : public WriterHandler {
 public:
  void OnClosed(absl::Status /*status*/) override {}
};

absl::Status TooBusy() {
  return WithRetryDelay(
      absl::ResourceExhaustedError("the coordinator has too much to tokenize"),
      kRetryDelay);
}

}  // namespace

GenerationService::GenerationService(const CoordinatorOptions& options,
                                     const SessionEnvironment& environment,
                                     const ModelCatalog* catalog)
    : options_(options),
      environment_(environment),
      catalog_(catalog),
      workers_(
          "tokenize", options.num_workers, kMaxQueuedWork, kMaxQueuedWorkBytes),
      unary_workers_("unary",
                     options.num_workers,
                     kMaxQueuedUnaryWork,
                     kMaxQueuedUnaryBytes),
      score_workers_("score", kNumScoreWorkers, kMaxQueuedScores) {}

GenerationService::~GenerationService() = default;

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerationService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  StreamLimits limits;
  limits.sent_bytes = environment_.metrics->generate_response_bytes;
  environment_.metrics->generate_request_bytes->Increment(
      static_cast<double>(request->ByteSizeLong()));
  // Credit keeps a session below; one message tells at least one token.
  const size_t num_choices =
      static_cast<size_t>(std::clamp(request->n(), 1, kMaxChoices));
  limits.max_queued_messages =
      num_choices * static_cast<size_t>(options_.credit) + 64;
  if (request->has_prompt_logprobs()) {
    // Not held back by credit; kMaxPromptLogprobs bounds their size. A message
    // tells of 16 positions or more, save the last.
    limits.max_queued_messages += size_t{kMaxPromptLogprobs} / 16;
  }
  if (request->has_prompt_logprobs() || request->echo()) {
    limits.max_queued_bytes *= 2;
  }
  return StartServerWriter<v1::GenerateResponse>(
      context, limits, [&](Sender sender) {
        return StartSession(context, *request, std::move(sender));
      });
}

std::shared_ptr<WriterHandler> GenerationService::StartSession(
    grpc::CallbackServerContext* context,
    const v1::GenerateRequest& request,
    Sender sender) {
  const absl::Time arrival = absl::Now();
  if (const absl::Status status = Admit(); !status.ok()) {
    environment_.metrics->OnFailure(status);
    sender->Finish(status);
    return std::make_shared<RefusedHandler>();
  }
  const std::shared_ptr<Session> session =
      MakeSession({std::move(sender), arrival, DeadlineOf(*context), [this] {
                     OnRequestEnded();
                   }});
  std::shared_ptr<WriterHandler> handler = session->MakeClientHandler();
  if (absl::Status status = CheckGenerateFields(request); !status.ok()) {
    session->Begin(std::move(status));
    return handler;
  }
  absl::StatusOr<std::shared_ptr<const CatalogModel>> model =
      ResolveModel(request.model(), *catalog_, *environment_.registry);
  if (!model.ok()) {
    session->Begin(model.status());
    return handler;
  }
  // Before any work is done for it.
  if (absl::Status status = environment_.registry->CheckRoom(
          (*model)->info.model.model_digest, request.has_n() ? request.n() : 1);
      !status.ok()) {
    session->Begin(std::move(status));
    return handler;
  }
  RequestDefaults defaults;
  defaults.speculation = options_.speculation;
  defaults.credit = options_.credit;
  defaults.drafters = DrafterNames((*model)->info);
  const std::string user = UserOf(*context);
  defaults.user = ShareOf(user);
  // A copy: the call, and its request with it, may end before a worker comes to
  // it.
  const bool queued = workers_.Post(
      [session,
       request = v1::GenerateRequest(request),
       model = *std::move(model),
       defaults = std::move(defaults)]() mutable {
        if (session->gone()) return;
        session->Begin(BuildRequest(request, std::move(model), defaults));
      },
      request.SpaceUsedLong(),
      user);
  if (!queued) session->Begin(TooBusy());
  return handler;
}

std::vector<std::string> GenerationService::DrafterNames(
    const VerifierInfo& info) const {
  std::vector<std::string> names =
      environment_.registry->DrafterNames(info.vocabulary_fingerprint);
  if (!environment_.registry->DraftsLocally(info.model.model_digest)) {
    return names;
  }
  for (const char* name : {kSuffixDrafter, kLocalDrafter}) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.emplace_back(name);
    }
  }
  return names;
}

absl::Status GenerationService::Admit() {
  MutexLock lock(&mutex_);
  if (stopping_) {
    return DrainingError("the coordinator is shutting down");
  }
  if (num_requests_ >= options_.max_concurrent_requests) {
    return WithRetryDelay(
        absl::ResourceExhaustedError(absl::StrCat(
            num_requests_,
            " requests are running, which is the coordinator's limit")),
        kRetryDelay);
  }
  ++num_requests_;
  return absl::OkStatus();
}

void GenerationService::OnRequestEnded() {
  MutexLock lock(&mutex_);
  --num_requests_;
  changed_.NotifyAll();
}

std::shared_ptr<Session> GenerationService::MakeSession(Session::Call call) {
  int64_t number = 0;
  {
    MutexLock lock(&mutex_);
    number = ++last_session_;
  }
  std::shared_ptr<Session> session(new Session(environment_, std::move(call)),
                                   [this, number](Session* gone) {
                                     // Its entry goes last: whoever waits for
                                     // an empty list may then destroy all that
                                     // sessions use.
                                     delete gone;
                                     MutexLock lock(&mutex_);
                                     sessions_.erase(number);
                                     changed_.NotifyAll();
                                   });
  MutexLock lock(&mutex_);
  sessions_[number] = session;
  return session;
}

std::vector<std::shared_ptr<Session>> GenerationService::Sessions() {
  std::vector<std::shared_ptr<Session>> sessions;
  MutexLock lock(&mutex_);
  for (const auto& [key, weak] : sessions_) {
    // Null if the last owner is just letting go of it.
    if (std::shared_ptr<Session> session = weak.lock(); session != nullptr) {
      sessions.push_back(std::move(session));
    }
  }
  return sessions;
}

void GenerationService::CheckStalls(absl::Time now) {
  for (const std::shared_ptr<Session>& session : Sessions()) {
    session->CheckStall(now, options_.client_stall);
  }
}

std::string GenerationService::UserOf(
    const grpc::CallbackServerContext& context) const {
  return coordinator::UserOf(context, !options_.api_keys.empty());
}

grpc::ServerUnaryReactor* GenerationService::RunOnWorker(
    grpc::CallbackServerContext* context,
    const google::protobuf::Message& request,
    absl::AnyInvocable<absl::Status()> work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool queued = unary_workers_.Post(
      [context, reactor, work = std::move(work)]() mutable {
        // Nobody waits for the work of a call that was given up.
        reactor->Finish(ToGrpcStatus(
            context->IsCancelled() ? absl::CancelledError("the caller has gone")
                                   : work()));
      },
      request.SpaceUsedLong(),
      UserOf(*context));
  if (!queued) reactor->Finish(ToGrpcStatus(TooBusy()));
  return reactor;
}

grpc::ServerUnaryReactor* GenerationService::Score(
    grpc::CallbackServerContext* context,
    const v1::ScoreRequest* request,
    v1::ScoreResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto finish = [this, reactor](const absl::Status& status) {
    if (!status.ok()) environment_.metrics->OnFailure(status);
    reactor->Finish(ToGrpcStatus(status));
  };
  if (const absl::Status status = Admit(); !status.ok()) {
    finish(status);
    return reactor;
  }
  const auto run = [this, context, request, response]() -> absl::Status {
    SPECWIRE_ASSIGN_OR_RETURN(
        std::shared_ptr<const CatalogModel> model,
        ResolveModel(request->model(), *catalog_, *environment_.registry));
    SPECWIRE_ASSIGN_OR_RETURN(CheckedScore score,
                              BuildScore(*request, std::move(model)));
    score.user = ShareOf(UserOf(*context));
    return RunScore(score, environment_, *context, response);
  };
  const bool queued = score_workers_.Post(
      [this, context, run, finish] {
        const absl::Status status =
            context->IsCancelled() ? absl::CancelledError("the caller has gone")
                                   : run();
        OnRequestEnded();
        finish(status);
      },
      request->SpaceUsedLong(),
      UserOf(*context));
  if (!queued) {
    OnRequestEnded();
    finish(WithRetryDelay(
        absl::ResourceExhaustedError("too many texts wait to be scored"),
        kRetryDelay));
  }
  return reactor;
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(
    grpc::CallbackServerContext* context,
    const v1::TokenizeRequest* request,
    v1::TokenizeResponse* response) {
  return RunOnWorker(
      context, *request, [this, request, response]() -> absl::Status {
        SPECWIRE_RETURN_IF_ERROR(CheckTextSize(request->text(), "text"));
        SPECWIRE_ASSIGN_OR_RETURN(
            const std::shared_ptr<const CatalogModel> model,
            ResolveModel(request->model(), *catalog_, *environment_.registry));
        const absl::StatusOr<std::vector<int32_t>> ids =
            model->tokenizer->Encode(request->text(),
                                     request->plain()
                                         ? SpecialTokens::kAsText
                                         : SpecialTokens::kRecognise);
        if (!ids.ok()) return TooMuchForGood(ids.status(), "text");
        response->mutable_token_ids()->Assign(ids->begin(), ids->end());
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(
    grpc::CallbackServerContext* context,
    const v1::DetokenizeRequest* request,
    v1::DetokenizeResponse* response) {
  return RunOnWorker(
      context, *request, [this, request, response]() -> absl::Status {
        if (request->token_ids_size() > kMaxDetokenizeIds) {
          return absl::InvalidArgumentError(
              absl::StrCat("token_ids: ",
                           request->token_ids_size(),
                           " ids; at most ",
                           kMaxDetokenizeIds));
        }
        SPECWIRE_ASSIGN_OR_RETURN(
            const std::shared_ptr<const CatalogModel> model,
            ResolveModel(request->model(), *catalog_, *environment_.registry));
        SPECWIRE_RETURN_IF_ERROR(CheckTokenIds(
            request->token_ids(), model->info.model.vocab_size, "token_ids"));
        std::string text = model->tokenizer->Decode(
            request->token_ids(), request->skip_special_tokens());
        if (text.size() > Tokenizer::kMaxTextBytes) {
          return absl::InvalidArgumentError(
              absl::StrCat("token_ids: their text has ",
                           text.size(),
                           " bytes; at most ",
                           Tokenizer::kMaxTextBytes));
        }
        response->set_text(std::move(text));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* GenerationService::RenderChat(
    grpc::CallbackServerContext* context,
    const v1::RenderChatRequest* request,
    v1::RenderChatResponse* response) {
  return RunOnWorker(
      context, *request, [this, request, response]() -> absl::Status {
        SPECWIRE_ASSIGN_OR_RETURN(
            const std::shared_ptr<const CatalogModel> model,
            ResolveModel(request->model(), *catalog_, *environment_.registry));
        SPECWIRE_ASSIGN_OR_RETURN(
            RenderedChat chat,
            coordinator::RenderChat(*model, request->chat()));
        response->set_text(std::move(chat.text));
        response->mutable_token_ids()->Assign(chat.token_ids.begin(),
                                              chat.token_ids.end());
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* GenerationService::ListModels(
    grpc::CallbackServerContext* context,
    const v1::ListModelsRequest* /*request*/,
    v1::ListModelsResponse* response) {
  const Registry& registry = *environment_.registry;
  for (const std::shared_ptr<const CatalogModel>& model : catalog_->Models()) {
    const VerifierInfo& info = model->info;
    const int num_verifiers = registry.CountVerifiers(info.model.model_digest);
    if (num_verifiers == 0) continue;
    v1::ServedModel* served = response->add_models();
    *served->mutable_model() = ToProto(
        info.model, info.vocabulary_fingerprint, info.max_num_sequences);
    served->set_num_verifiers(num_verifiers);
    served->set_num_draft_nodes(
        registry.CountDrafters(info.vocabulary_fingerprint));
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

void GenerationService::OnDrafterAvailable() {
  for (const std::shared_ptr<Session>& session : Sessions()) {
    session->OnDrafterAvailable();
  }
}

void GenerationService::OnNodeSuspect(const std::string& node_id,
                                      const absl::Status& why) {
  for (const std::shared_ptr<Session>& session : Sessions()) {
    session->OnNodeSuspect(node_id, why);
  }
}

void GenerationService::StopAccepting() {
  MutexLock lock(&mutex_);
  stopping_ = true;
}

void GenerationService::FailAll(const absl::Status& status) {
  for (const std::shared_ptr<Session>& session : Sessions()) {
    session->Fail(status);
  }
}

int GenerationService::num_requests() const {
  MutexLock lock(&mutex_);
  return num_requests_;
}

bool GenerationService::WaitForRequests(absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (num_requests_ > 0) {
    if (!changed_.WaitUntil(&mutex_, deadline)) return num_requests_ == 0;
  }
  return true;
}

bool GenerationService::WaitForSessions(absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (!sessions_.empty()) {
    if (!changed_.WaitUntil(&mutex_, deadline)) return sessions_.empty();
  }
  return true;
}

}  // namespace specwire::coordinator
