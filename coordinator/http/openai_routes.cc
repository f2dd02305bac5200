// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/openai_routes.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"
#include "coordinator/http/http_status.h"
#include "coordinator/http/json_input.h"
#include "coordinator/http/openai_reply.h"
#include "coordinator/http/openai_request.h"
#include "coordinator/http/rpc_call.h"
#include "specwire/v1/generation.pb.h"

namespace specwire::coordinator {
namespace {

using Json = nlohmann::json;
using Parser = absl::StatusOr<OpenAiRequest> (*)(const Json& body);

constexpr char kGenerate[] = "/specwire.v1.GenerationService/Generate";
constexpr char kListModels[] = "/specwire.v1.GenerationService/ListModels";
constexpr char kModelsPath[] = "/v1/models";
constexpr int kAliveMs = 10'000;
constexpr char kDone[] = "data: [DONE]\n\n";

HttpResponse JsonAnswer(const Json& json) {
  HttpResponse response;
  response.content_type = "application/json";
  response.body = DumpJson(json);
  return response;
}

// A completion that is being made.
class Completion {
 public:
  Completion(const HttpBackend& backend, OpenAiRequest request)
      : backend_(backend), request_(std::move(request)) {}

  // Makes the call.
  void Call(const HttpRequest& http) {
    std::string id =
        absl::StrCat(request_.chat ? "chatcmpl-" : "cmpl-", RandomHexId(12));
    // So that the log's name for it is the client's.
    if (request_.generate.request_id().empty()) {
      request_.generate.set_request_id(id);
    }
    reply_ = std::make_unique<OpenAiReply>(
        request_,
        OpenAiReply::Settings{.id = std::move(id),
                              .created = absl::ToUnixSeconds(absl::Now()),
                              .metrics = backend_.spec_decode_metrics});
    if (backend_.spec_decode_metrics == SpecDecodeMetrics::kDetailed) {
      request_.generate.set_trace(true);
    }
    request_.generate.set_alive_interval_ms(kAliveMs);
    call_ = std::make_unique<RpcCall>(
        backend_.channel, kGenerate, request_.generate, kStreamLimit, http);
    // It may be large, and is on its way.
    request_.generate.clear_prompt();
  }

  // Waits for it to begin. Errors in the request are found here.
  absl::Status Begin() {
    v1::GenerateResponse first;
    do {
      if (!call_->Read(&first)) return Finish();
    } while (first.has_alive());
    const std::shared_ptr<const CatalogModel> model =
        backend_.catalog->Find(first.started().model_digest());
    if (model == nullptr) return absl::InternalError("the model has gone");
    reply_->Start(first.started(), model->tokenizer);
    return absl::OkStatus();
  }

  HttpResponse Answer() {
    v1::GenerateResponse response;
    while (call_->Read(&response)) reply_->Take(response);
    const absl::Status status = Finish();
    return status.ok() ? JsonAnswer(reply_->Whole()) : ToHttpError(status);
  }

  void Stream(HttpStream* out) {
    v1::GenerateResponse response;
    while (call_->Read(&response)) {
      // A comment, so that nobody on the way takes the connection for dead.
      if (response.has_alive() && !out->Write(": alive\n\n")) return;
      for (const Json& chunk : reply_->Take(response)) {
        // The call is cancelled with this object.
        if (!Send(DumpJson(chunk), out)) return;
      }
    }
    const absl::Status status = Finish();
    if (!status.ok()) {
      Send(ToHttpError(status).body, out);
    } else if (request_.include_usage) {
      Send(DumpJson(reply_->UsageChunk()), out);
    }
    out->Write(kDone);
  }

  bool streams() const { return request_.stream; }

 private:
  static bool Send(const std::string& data, HttpStream* out) {
    return out->Write(absl::StrCat("data: ", data, "\n\n"));
  }

  absl::Status Finish() { return WithOpenAiField(call_->Finish()); }

  const HttpBackend& backend_;
  OpenAiRequest request_;
  std::unique_ptr<OpenAiReply> reply_;
  std::unique_ptr<RpcCall> call_;
};

// Reads the body, which it drops, and makes the call that it asks for.
absl::StatusOr<std::shared_ptr<Completion>> Start(const HttpBackend& backend,
                                                  HttpRequest& http,
                                                  Parser parser) {
  SPECWIRE_ASSIGN_OR_RETURN(const ByteBudget::Lease turn,
                            WaitToParse(backend, http.body));
  OpenAiRequest request;
  {
    SPECWIRE_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(http.body));
    http.DropBody();
    SPECWIRE_ASSIGN_OR_RETURN(request, parser(body));
  }
  auto completion = std::make_shared<Completion>(backend, std::move(request));
  completion->Call(http);
  return completion;
}

HttpResponse Complete(const HttpBackend& backend,
                      HttpRequest& http,
                      Parser parser) {
  const absl::StatusOr<std::shared_ptr<Completion>> started =
      Start(backend, http, parser);
  if (!started.ok()) return ToHttpError(started.status());
  const std::shared_ptr<Completion>& completion = *started;
  if (const absl::Status status = completion->Begin(); !status.ok()) {
    return ToHttpError(status);
  }
  if (!completion->streams()) return completion->Answer();
  HttpResponse answer;
  answer.content_type = "text/event-stream";
  answer.stream = [completion](HttpStream* out) { completion->Stream(out); };
  return answer;
}

Json ModelJson(const v1::ModelDescription& model, int64_t created) {
  return {{"id", model.name()},
          {"object", "model"},
          {"created", created},
          {"owned_by", "specwire"},
          {"max_model_len", model.max_model_len()},
          {"model_digest", model.model_digest()}};
}

// One object for each name.
absl::StatusOr<std::vector<Json>> ListModels(const HttpBackend& backend,
                                             const HttpRequest& http,
                                             int64_t created) {
  v1::ListModelsResponse response;
  SPECWIRE_RETURN_IF_ERROR(CallUnary(
      backend.channel, kListModels, v1::ListModelsRequest(), http, &response));
  std::vector<Json> models;
  std::set<std::string> names;
  for (const v1::ServedModel& served : response.models()) {
    if (names.insert(served.model().name()).second) {
      models.push_back(ModelJson(served.model(), created));
    }
  }
  return models;
}

HttpResponse Models(const HttpBackend& backend,
                    const HttpRequest& http,
                    int64_t created) {
  const absl::StatusOr<std::vector<Json>> models =
      ListModels(backend, http, created);
  if (!models.ok()) return ToHttpError(models.status());
  return JsonAnswer({{"object", "list"}, {"data", *models}});
}

HttpResponse OneModel(const HttpBackend& backend,
                      const HttpRequest& http,
                      int64_t created) {
  const absl::StatusOr<std::vector<Json>> models =
      ListModels(backend, http, created);
  if (!models.ok()) return ToHttpError(models.status());
  const std::string name = http.path.substr(sizeof(kModelsPath));
  std::vector<std::string> served;
  for (const Json& model : *models) {
    if (model["id"] == name) return JsonAnswer(model);
    served.push_back(model["id"]);
  }
  return ToHttpError(
      absl::NotFoundError(absl::StrCat("model: '",
                                       name,
                                       "' is not served; served: ",
                                       absl::StrJoin(served, ", "))));
}

}  // namespace

void AddOpenAiRoutes(HttpServer* server, const HttpBackend* backend) {
  const auto add = [server, backend](const char* path, Parser parser) {
    HttpRoute route;
    route.method = "POST";
    route.path = path;
    route.slow = true;
    route.admit = AdmitTo(kGenerate, &backend->access);
    route.handler = [backend, parser](HttpRequest& request) {
      return Complete(*backend, request, parser);
    };
    server->Handle(std::move(route));
  };
  add("/v1/completions", &ParseCompletion);
  add("/v1/chat/completions", &ParseChatCompletion);
  const int64_t created = absl::ToUnixSeconds(absl::Now());
  HttpRoute all;
  all.path = kModelsPath;
  all.admit = AdmitTo(kListModels, &backend->access);
  all.handler = [backend, created](const HttpRequest& request) {
    return Models(*backend, request, created);
  };
  server->Handle(std::move(all));
  HttpRoute one;
  one.path = absl::StrCat(kModelsPath, "/");
  one.prefix = true;
  one.admit = AdmitTo(kListModels, &backend->access);
  one.handler = [backend, created](const HttpRequest& request) {
    return OneModel(*backend, request, created);
  };
  server->Handle(std::move(one));
}

}  // namespace specwire::coordinator
