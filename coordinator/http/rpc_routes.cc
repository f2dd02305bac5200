// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/rpc_routes.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/retry_delay.h"
#include "common/base/status_macros.h"
#include "coordinator/http/http_status.h"
#include "coordinator/http/json_input.h"
#include "coordinator/http/proto_json.h"
#include "coordinator/http/rpc_call.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"

namespace specwire::coordinator {
namespace {

using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

// What need not wait: all requests together that a server answers at once may
// take so much.
constexpr size_t kSmallParse = 160 << 10;
constexpr absl::Duration kParsePatience = absl::Seconds(10);

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
  return ParseProtoJson(body, "body", request);
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
                        const HttpRequest& http,
                        ByteBudget::Lease turn) {
  const auto stream = std::make_shared<StreamCall>();
  stream->call = std::make_unique<RpcCall>(
      backend.channel, path, request, kStreamLimit, http);
  turn.Release();
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
                        HttpRequest& http) {
  const std::string path = PathOf(*method);
  absl::StatusOr<ByteBudget::Lease> turn = WaitToParse(backend, http.body);
  if (!turn.ok()) return ToHttpError(turn.status());
  const std::unique_ptr<Message> request = MakeMessage(method->input_type());
  absl::Status status = ParseRequest(http.body, request.get());
  if (!status.ok()) return ToHttpError(status);
  http.DropBody();
  std::unique_ptr<Message> response = MakeMessage(method->output_type());
  if (method->server_streaming()) {
    return CallStream(
        backend, path, *request, std::move(response), http, *std::move(turn));
  }
  RpcCall call(backend.channel, path, *request, kUnaryLimit, http);
  turn->Release();
  call.Read(response.get());
  status = call.Finish();
  if (!status.ok()) return ToHttpError(status);
  absl::StatusOr<std::string> json = ToJson(*response);
  if (!json.ok()) return ToHttpError(json.status());
  HttpResponse answer;
  answer.content_type = "application/json";
  answer.body = *std::move(json);
  return answer;
}

}  // namespace

absl::StatusOr<ByteBudget::Lease> WaitToParse(const HttpBackend& backend,
                                              const std::string& body) {
  const size_t bytes = JsonMemory(body);
  if (bytes <= kSmallParse) return ByteBudget::Lease();
  std::optional<ByteBudget::Lease> turn =
      backend.parsing.Take(bytes, kParsePatience);
  if (turn.has_value()) return *std::move(turn);
  return WithRetryDelay(
      absl::UnavailableError("too many large requests wait to be parsed"),
      absl::Seconds(1));
}

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
    route.handler = [backend, method](HttpRequest& request) {
      return CallMethod(*backend, method, request);
    };
    server->Handle(std::move(route));
  }
}

}  // namespace specwire::coordinator
