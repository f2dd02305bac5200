// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_exchange.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/http/http_head.h"

namespace specwire {
namespace {

constexpr size_t kMaxPathBytes = 2048;
// Of a chunked body, beside its content: a chunk costs bytes of its own.
constexpr size_t kChunkAllowance = 64 << 10;
constexpr char kJson[] = "application/json";

HttpRequest FromLibrary(const httplib::Request& request) {
  HttpRequest result;
  result.method = request.method;
  result.path = request.path;
  for (const auto& [name, value] : request.params) result.query[name] = value;
  for (const auto& [name, value] : request.headers) {
    result.headers[absl::AsciiStrToLower(name)] = value;
  }
  return result;
}

bool ReadsOnly(const httplib::Request& request) {
  return request.method == "GET" || request.method == "HEAD";
}

bool SaysClose(const httplib::Request& request) {
  const std::string value =
      absl::AsciiStrToLower(request.get_header_value("Connection"));
  if (request.version == "HTTP/1.0") return value != "keep-alive";
  const std::vector<absl::string_view> words =
      absl::StrSplit(value, absl::ByAnyChar(", "));
  return std::find(words.begin(), words.end(), "close") != words.end();
}

void SetHeader(const char* name,
               const std::string& value,
               httplib::Headers* headers) {
  headers->erase(name);
  headers->emplace(name, value);
}

// The body of a streamed answer.
class SinkStream final : public HttpStream {
 public:
  explicit SinkStream(httplib::DataSink* sink) : sink_(sink) {}

  bool Write(absl::string_view data) override {
    // An empty chunk would be the last.
    if (ok_ && !data.empty()) ok_ = sink_->write(data.data(), data.size());
    return ok_;
  }
  bool ok() const { return ok_; }

 private:
  httplib::DataSink* const sink_;
  bool ok_ = true;
};

HttpResponse TryAgain(absl::string_view message) {
  HttpResponse busy = HttpError(503, message);
  busy.headers.emplace_back("Retry-After", "1");
  return busy;
}

// The headers without one that the library would act upon: parts of answers are
// not offered, and who asks for one gets the whole (RFC 9110, section 14.2).
std::string WithoutRange(absl::string_view head) {
  std::vector<absl::string_view> lines = absl::StrSplit(head, '\n');
  const auto is_range = [](absl::string_view line) {
    return absl::StartsWithIgnoreCase(line, "range:");
  };
  lines.erase(std::remove_if(lines.begin(), lines.end(), is_range),
              lines.end());
  return absl::StrJoin(lines, "\n");
}

// Up to the second slash, with it: "/v1/" of "/v1/models". Empty if there is
// none.
absl::string_view FirstFolder(absl::string_view path) {
  const size_t end = path.find('/', 1);
  return end == absl::string_view::npos ? "" : path.substr(0, end + 1);
}

}  // namespace

std::string RawAnswer(const HttpResponse& answer) {
  std::string raw =
      absl::StrCat("HTTP/1.1 ",
                   answer.status,
                   " ",
                   answer.status == 431 ? "Request Header Fields Too Large"
                                        : "Service Unavailable",
                   "\r\nConnection: close\r\nContent-Type: ",
                   answer.content_type,
                   "\r\nContent-Length: ",
                   answer.body.size(),
                   "\r\n");
  for (const auto& [name, value] : answer.headers) {
    absl::StrAppend(&raw, name, ": ", value, "\r\n");
  }
  return absl::StrCat(raw, "\r\n", answer.body);
}

HttpResponse NoRoom() {
  return TryAgain("the server has as many connections as it can");
}

HttpExchange::HttpExchange(HttpContext* context,
                           HttpConnection* connection,
                           std::function<void()> on_answer)
    : context_(context),
      connection_(connection),
      on_answer_(std::move(on_answer)),
      head_timeout_(context->options.timeout) {
  // Else the library takes itself for shut down. No socket: it has none.
  svr_sock_ = 0;
  keep_alive_max_count_ = 1000;
  keep_alive_timeout_sec_ =
      static_cast<time_t>(absl::ToInt64Seconds(context_->options.idle_timeout));
  set_payload_max_length(context_->options.max_body_bytes);
  set_default_headers({{"X-Content-Type-Options", "nosniff"},
                       {"Content-Security-Policy", kContentSecurityPolicy},
                       {"Referrer-Policy", "no-referrer"},
                       {"Cross-Origin-Resource-Policy", "same-origin"},
                       {"Cache-Control", "no-store"}});
  set_pre_routing_handler(
      [this](const httplib::Request& request, httplib::Response& response) {
        if (!refusal_.has_value() && !ReadsOnly(request)) {
          return HandlerResponse::Unhandled;
        }
        Answer(request, {}, &response);
        return HandlerResponse::Handled;
      });
  // The only pattern: routes are ours.
  Post(".*",
       [this](const httplib::Request& request,
              httplib::Response& response,
              const httplib::ContentReader& reader) {
         ReadAndAnswer(request, &response, reader);
       });
  set_expect_100_continue_handler(
      [this](const httplib::Request&, httplib::Response& response) {
        if (!refusal_.has_value()) return 100;
        Fill(*std::exchange(refusal_, std::nullopt), &response);
        return response.status;
      });
  set_error_handler(
      Handler([this](const httplib::Request&, httplib::Response& response) {
        FillError(&response);
      }));
  set_exception_handler([this](const httplib::Request&,
                               httplib::Response& response,
                               std::exception_ptr /*error*/) {
    close_ = true;
    Fill(HttpError(500, "the server could not answer this request"), &response);
  });
}

HttpExchange::~HttpExchange() { svr_sock_ = INVALID_SOCKET; }

void HttpExchange::EndStreams() { svr_sock_ = INVALID_SOCKET; }

void HttpExchange::ServeOnlyOne(absl::Duration limit) {
  only_one_ = true;
  head_timeout_ = limit;
}

bool HttpExchange::Next() {
  begun_ = false;
  close_ = false;
  http_1_0_ = false;
  route_ = nullptr;
  refusal_.reset();
  body_bytes_ = 0;
  switch (connection_->ReadHead(
      context_->options.max_head_bytes, head_timeout_, &head_)) {
    case HttpConnection::Head::kEnd:
      return false;
    case HttpConnection::Head::kTooLong:
      answered_ = true;
      connection_->WriteNow(
          RawAnswer(HttpError(431, "the headers are too long")));
      return false;
    case HttpConnection::Head::kRead:
      break;
  }
  target_ok_ = TakeTargetHost(&head_, &target_host_);
  const std::string for_library = WithoutRange(head_);
  connection_->Unread(for_library);
  connection_->LimitReads(for_library.size(), head_timeout_);
  bool closed = false;
  const bool answered =
      process_request(*connection_,
                      /*close_connection=*/false,
                      closed,
                      [this](httplib::Request& request) { Begin(&request); });
  if (std::exchange(counted_slow_, false)) --context_->num_slow;
  context_->trimmer.OnFreed(body_bytes_);
  // A head that was not understood may be anything.
  return answered && begun_ && !closed && !close_ &&
         svr_sock_ != INVALID_SOCKET;
}

void HttpExchange::Begin(httplib::Request* request) {
  begun_ = true;
  http_1_0_ = request->version == "HTTP/1.0";
  if (!TakeHeaders(request)) {
    refusal_ = HttpError(400, "the headers are malformed");
  } else if (!target_ok_) {
    refusal_ = HttpError(400, "the host in the request line is malformed");
  }
  close_ = SaysClose(*request);
  // Compressed answers are not offered.
  request->headers.erase("Accept-Encoding");
  if (!refusal_.has_value()) route_ = FindRoute(*request);
  if (only_one_) {
    close_ = true;
    if (route_ == nullptr || !route_->always) refusal_ = NoRoom();
  }
  if (!refusal_.has_value()) refusal_ = CheckBody(*request);
  if (!refusal_.has_value() && route_->admit != nullptr) {
    HttpRequest ours = FromLibrary(*request);
    ours.client = this;
    refusal_ = route_->admit(ours);
  }
  // Where requests begin and end behind chunks is a thing that proxies differ
  // in; what is left of a refused body is no request.
  if (refusal_.has_value() || request->has_header("Transfer-Encoding")) {
    close_ = true;
  }
  if (close_) SetHeader("Connection", "close", &request->headers);
  connection_->LimitReads(context_->options.max_body_bytes +
                              context_->options.max_body_bytes / 4 +
                              kChunkAllowance,
                          context_->options.body_timeout);
}

bool HttpExchange::TakeHeaders(httplib::Request* request) {
  const auto headers = ParseHeaders(head_);
  request->headers.clear();
  if (!headers.has_value()) return false;
  for (const auto& [name, value] : *headers) {
    request->headers.emplace(name, value);
  }
  if (request->get_header_value_count("Host") > 1) return false;
  if (target_host_.has_value()) {
    SetHeader("Host", *target_host_, &request->headers);
  }
  if (request->method == "POST" && !request->has_header("Content-Length") &&
      !request->has_header("Transfer-Encoding")) {
    // The library would read on to the connection's end.
    request->headers.emplace("Content-Length", "0");
  }
  return true;
}

const HttpRoute* HttpExchange::FindRoute(const httplib::Request& request) {
  if (request.path.size() > kMaxPathBytes) {
    refusal_ = HttpError(414, "the path is too long");
    return nullptr;
  }
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  const HttpRoute* best = nullptr;
  std::string other;
  for (const HttpRoute& route : context_->routes) {
    const bool fits = route.prefix ? absl::StartsWith(request.path, route.path)
                                   : request.path == route.path;
    if (!fits) continue;
    if (route.method != method) {
      if (!route.prefix) other = route.method;
      continue;
    }
    if (best == nullptr || !route.prefix ||
        (best->prefix && route.path.size() > best->path.size())) {
      best = &route;
    }
  }
  if (best != nullptr && (other.empty() || !best->prefix)) return best;
  if (other.empty()) {
    refusal_ = HttpError(404, NothingAt(request.path));
    return nullptr;
  }
  refusal_ = HttpError(405, absl::StrCat(request.path, " takes ", other));
  refusal_->headers.emplace_back("Allow", other == "GET" ? "GET, HEAD" : other);
  return nullptr;
}

std::optional<HttpResponse> HttpExchange::CheckBody(
    const httplib::Request& request) {
  const size_t num_lengths = request.get_header_value_count("Content-Length");
  const size_t num_encodings =
      request.get_header_value_count("Transfer-Encoding");
  uint64_t length = 0;
  if (num_lengths > 1 || num_encodings > 1 ||
      (num_lengths > 0 && num_encodings > 0)) {
    return HttpError(400, "Content-Length, Transfer-Encoding: one of them");
  }
  if (num_lengths == 1) {
    const std::string value = request.get_header_value("Content-Length");
    const bool digits =
        std::all_of(value.begin(), value.end(), [](unsigned char c) {
          return absl::ascii_isdigit(c);
        });
    if (!digits || !absl::SimpleAtoi(value, &length)) {
      return HttpError(400, "Content-Length: must be a number");
    }
  }
  if (ReadsOnly(request)) {
    if (length == 0 && num_encodings == 0) return std::nullopt;
    return HttpError(400, "this method takes no body");
  }
  if (num_encodings == 1 &&
      !absl::EqualsIgnoreCase(request.get_header_value("Transfer-Encoding"),
                              "chunked")) {
    return HttpError(501, "Transfer-Encoding: must be chunked");
  }
  if (length > context_->options.max_body_bytes) {
    return HttpError(413,
                     absl::StrCat("the body has ",
                                  length,
                                  " bytes; at most ",
                                  context_->options.max_body_bytes));
  }
  if (request.has_header("Content-Encoding")) {
    return HttpError(415, "Content-Encoding: the body must not be compressed");
  }
  const std::string type = request.get_header_value("Content-Type");
  if (!absl::EqualsIgnoreCase(
          absl::StripAsciiWhitespace(type.substr(0, type.find(';'))), kJson)) {
    return HttpError(415, "Content-Type: must be application/json");
  }
  return std::nullopt;
}

std::string HttpExchange::NothingAt(const std::string& path) const {
  std::string message = absl::StrCat("there is nothing at ", path);
  const absl::string_view folder = FirstFolder(path);
  std::set<absl::string_view> near;
  for (const HttpRoute& route : context_->routes) {
    if (!folder.empty() && FirstFolder(route.path) == folder) {
      near.insert(route.path);
    }
  }
  if (!near.empty()) {
    absl::StrAppend(&message, "; there are ", absl::StrJoin(near, ", "));
  }
  return message;
}

bool HttpExchange::TakePart(absl::string_view part, Body* body) {
  const size_t before = std::max(body->bytes.size(), kSmallBodyBytes);
  const size_t after =
      std::max(body->bytes.size() + part.size(), kSmallBodyBytes);
  // The library bounds chunked bodies by nothing.
  body->too_long =
      body->bytes.size() + part.size() > context_->options.max_body_bytes;
  if (body->too_long) return false;
  body->no_room = after > before && !body->lease.Grow(after - before);
  if (body->no_room) return false;
  body->bytes.append(part.data(), part.size());
  return true;
}

HttpResponse HttpExchange::BodyError(const Body& body) const {
  if (connection_->evicted()) return NoRoom();
  if (body.no_room) {
    return TryAgain(
        absl::StrCat("the bodies of all requests together have ",
                     context_->options.max_bodies_bytes,
                     " bytes, which is the most that the server holds"));
  }
  if (body.too_long || connection_->over_limit()) {
    return HttpError(413,
                     absl::StrCat("the body has more than ",
                                  context_->options.max_body_bytes,
                                  " bytes"));
  }
  return HttpError(400, "the body cannot be read");
}

void HttpExchange::ReadAndAnswer(const httplib::Request& request,
                                 httplib::Response* response,
                                 const httplib::ContentReader& reader) {
  Body body;
  body.lease = context_->bodies.Open();
  const bool read = reader([this, &body](const char* data, size_t size) {
    return TakePart({data, size}, &body);
  });
  body_bytes_ = body.bytes.size();
  if (!read) {
    refusal_ = BodyError(body);
  } else if (request.has_header("Transfer-Encoding") &&
             !connection_->at_empty_line()) {
    // The library takes what stands where a chunk should end for the end of
    // all.
    refusal_ = HttpError(400, "the body's chunks are malformed");
  }
  if (refusal_.has_value()) {
    // What follows may be more of the body.
    close_ = true;
    SetHeader("Connection", "close", &response->headers);
    body = Body();
  }
  Answer(request, std::move(body), response);
}

void HttpExchange::Answer(const httplib::Request& request,
                          Body body,
                          httplib::Response* response) {
  if (on_answer_ != nullptr) on_answer_();
  answered_ = true;
  if (refusal_.has_value()) {
    Fill(*std::exchange(refusal_, std::nullopt), response);
    return;
  }
  if (route_->slow) {
    counted_slow_ = true;
    if (++context_->num_slow > context_->options.max_slow_requests) {
      Fill(TryAgain("the server is answering as many requests as it can"),
           response);
      return;
    }
  }
  Fill(Handle(request, std::move(body)), response);
}

HttpResponse HttpExchange::Handle(const httplib::Request& request, Body body) {
  HttpRequest ours = FromLibrary(request);
  ours.client = this;
  ours.body = std::move(body.bytes);
  ours.body_lease = std::move(body.lease);
  return route_->handler(ours);
}

void HttpExchange::Fill(HttpResponse answer, httplib::Response* response) {
  response->status = answer.status;
  for (const auto& [name, value] : answer.headers) {
    SetHeader(name.c_str(), value, &response->headers);
  }
  if (answer.stream == nullptr) {
    response->set_content(std::move(answer.body), answer.content_type);
    return;
  }
  auto provider = [stream = std::move(answer.stream)](size_t /*offset*/,
                                                      httplib::DataSink& sink) {
    SinkStream out(&sink);
    stream(&out);
    if (out.ok()) sink.done();
    return out.ok();
  };
  if (http_1_0_) {
    // It knows no chunks: the connection's end is the body's.
    close_ = true;
    response->set_content_provider(answer.content_type, std::move(provider));
  } else {
    response->set_chunked_content_provider(answer.content_type,
                                           std::move(provider));
  }
}

void HttpExchange::FillError(httplib::Response* response) {
  answered_ = true;
  if (!response->body.empty()) return;
  close_ = true;
  const char* message = "the request cannot be read";
  if (response->status == 414) message = "the path is too long";
  const HttpResponse error = HttpError(response->status, message);
  response->set_content(error.body, error.content_type);
}

std::unique_ptr<HttpClient::Watch> HttpExchange::OnGone(
    std::function<void()> on_gone) {
  return context_->watch.Add(connection_->fd(), std::move(on_gone));
}

}  // namespace specwire
