// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/rpc_routes.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/http/http_status.h"
#include "coordinator/http/json_input.h"
#include "coordinator/http/rpc_call.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"

namespace specwire::coordinator {
namespace {

using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

std::unique_ptr<Message> MakeMessage(
    const google::protobuf::Descriptor* descriptor) {
  return std::unique_ptr<Message>(
      google::protobuf::MessageFactory::generated_factory()
          ->GetPrototype(descriptor)
          ->New());
}

absl::Status ParseRequest(const std::string& body, Message* request) {
  SPECWIRE_RETURN_IF_ERROR(CheckJsonObject(body));
  if (body.empty()) return absl::OkStatus();
  const auto status =
      google::protobuf::util::JsonStringToMessage(body, request);
  if (status.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "body: the JSON is no ",
      request->GetDescriptor()->name(),
      ": ",
      std::string(status.message().data(), status.message().size())));
}

absl::StatusOr<std::string> ToJson(const Message& message) {
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json).ok()) {
    return absl::InternalError("the response cannot be told as JSON");
  }
  return json;
}

// A stream that has begun.
struct StreamCall {
  std::unique_ptr<RpcCall> call;
  // The first response at first.
  std::unique_ptr<Message> response;

  void Send(HttpStream* out) {
    absl::Status status;
    do {
      const absl::StatusOr<std::string> json = ToJson(*response);
      if (!json.ok()) {
        status = json.status();
        break;
      }
      // Not read to its end if the client has gone: it is cancelled.
      if (!out->Write(absl::StrCat("data: ", *json, "\n\n"))) return;
      response->Clear();
    } while (call->Read(response.get()));
    if (status.ok()) status = call->Finish();
    if (status.ok()) return;
    out->Write(
        absl::StrCat("event: error\ndata: ", ToHttpError(status).body, "\n\n"));
  }
};

HttpResponse CallStream(const HttpBackend& backend,
                        const std::string& path,
                        const Message& request,
                        std::unique_ptr<Message> response,
                        HttpClient* client) {
  const auto stream = std::make_shared<StreamCall>();
  stream->call = std::make_unique<RpcCall>(
      backend.channel, path, request, kStreamLimit, client);
  stream->response = std::move(response);
  HttpResponse answer;
  answer.content_type = "text/event-stream";
  // What fails before it begins fails with a status code.
  if (stream->call->Read(stream->response.get())) {
    answer.stream = [stream](HttpStream* out) { stream->Send(out); };
    return answer;
  }
  const absl::Status status = stream->call->Finish();
  return status.ok() ? answer : ToHttpError(status);
}

std::string PathOf(const MethodDescriptor& method) {
  return absl::StrCat("/", method.service()->full_name(), "/", method.name());
}

HttpResponse CallMethod(const HttpBackend& backend,
                        const MethodDescriptor* method,
                        const HttpRequest& http) {
  const std::string path = PathOf(*method);
  const std::unique_ptr<Message> request = MakeMessage(method->input_type());
  absl::Status status = ParseRequest(http.body, request.get());
  if (!status.ok()) return ToHttpError(status);
  std::unique_ptr<Message> response = MakeMessage(method->output_type());
  if (method->server_streaming()) {
    return CallStream(
        backend, path, *request, std::move(response), http.client);
  }
  status =
      CallUnary(backend.channel, path, *request, http.client, response.get());
  if (!status.ok()) return ToHttpError(status);
  absl::StatusOr<std::string> json = ToJson(*response);
  if (!json.ok()) return ToHttpError(json.status());
  HttpResponse answer;
  answer.content_type = "application/json";
  answer.body = *std::move(json);
  return answer;
}

}  // namespace

void AddRpcRoutes(HttpServer* server,
                  const HttpBackend* backend,
                  const google::protobuf::ServiceDescriptor* service) {
  for (int i = 0; i < service->method_count(); ++i) {
    const MethodDescriptor* const method = service->method(i);
    if (method->client_streaming()) continue;
    HttpRoute route;
    route.method = "POST";
    route.path = absl::StrCat("/api/", method->name());
    route.slow = true;
    route.admit = AdmitTo(PathOf(*method), &backend->access);
    route.handler = [backend, method](const HttpRequest& request) {
      return CallMethod(*backend, method, request);
    };
    server->Handle(std::move(route));
  }
}

}  // namespace specwire::coordinator
