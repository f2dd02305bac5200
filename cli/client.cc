// SPDX-License-Identifier: Apache-2.0
#include "cli/client.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/command.h"
#include "common/base/host_port.h"
#include "common/base/retry_delay.h"
#include "common/base/status_macros.h"
#include "common/rpc/credentials.h"
#include "common/rpc/status.h"

namespace specwire::cli {
namespace {

constexpr size_t kMaxKeyBytes = 512;

// Waits until the channel is connected. Unlike WaitForConnected it gives up at
// the first refusal instead of trying again until the deadline.
bool WaitConnected(grpc::Channel* channel, absl::Time deadline) {
  for (;;) {
    const grpc_connectivity_state state = channel->GetState(true);
    if (state == GRPC_CHANNEL_READY) {
      return true;
    }
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE ||
        state == GRPC_CHANNEL_SHUTDOWN ||
        !channel->WaitForStateChange(state, absl::ToChronoTime(deadline))) {
      return false;
    }
  }
}

// The key of a file, else of the environment; empty if there is none.
absl::StatusOr<std::string> ReadApiKey(const std::string& path) {
  std::string key;
  if (path.empty()) {
    const char* const variable = std::getenv("SPECWIRE_API_KEY");
    if (variable == nullptr) return key;
    key = variable;
  } else {
    std::ifstream file(path);
    if (!std::getline(file, key)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--api_key_file: ", path, " holds no key"));
    }
  }
  absl::StripAsciiWhitespace(&key);
  const bool printable = std::all_of(key.begin(), key.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (key.empty() || key.size() > kMaxKeyBytes || !printable) {
    return absl::InvalidArgumentError(
        absl::StrCat(path.empty() ? "SPECWIRE_API_KEY" : "--api_key_file",
                     ": a key is 1 to ",
                     kMaxKeyBytes,
                     " printable ASCII characters without spaces"));
  }
  return key;
}

}  // namespace

void AddClientFlags(CLI::App* app, ClientFlags* flags) {
  app->add_option("--coordinator",
                  flags->coordinators,
                  "HOST:PORT of the coordinator; a comma-separated list is "
                  "tried in order")
      ->capture_default_str();
  app->add_option("--tls_ca",
                  flags->tls.ca,
                  "File with the roots that the coordinator's certificate must "
                  "come from (PEM); without it there is no TLS");
  app->add_option("--tls_cert",
                  flags->tls.cert,
                  "File with the user's own certificate (PEM), if the "
                  "coordinator asks for one");
  app->add_option("--tls_key",
                  flags->tls.key,
                  "File with the certificate's private key (PEM)");
  app->add_option("--api_key_file",
                  flags->api_key_file,
                  "File with the user's API key (default: the environment "
                  "variable SPECWIRE_API_KEY)");
  app->add_flag("--allow_insecure",
                flags->allow_insecure,
                "Send the API key without TLS to another machine");
}

RpcChannelOptions CoordinatorChannelOptions(const TlsFiles& tls) {
  RpcChannelOptions options;
  options.credentials = MakeChannelCredentials(tls);
  options.peer_name = kCoordinatorCertificate;
  return options;
}

absl::StatusOr<RpcChannelOptions> MakeChannelOptions(const ClientFlags& flags) {
  SPECWIRE_RETURN_IF_ERROR(
      CheckTlsFiles(flags.tls, /*needs_certificate=*/false, /*name=*/""));
  RpcChannelOptions options = CoordinatorChannelOptions(flags.tls);
  SPECWIRE_ASSIGN_OR_RETURN(options.api_key, ReadApiKey(flags.api_key_file));
  if (options.api_key.empty() || flags.tls.enabled() || flags.allow_insecure) {
    return options;
  }
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<std::string> addresses,
                            ParseCoordinators(flags));
  for (const std::string& text : addresses) {
    SPECWIRE_ASSIGN_OR_RETURN(const HostPort address,
                              ParseHostPort(text, "--coordinator"));
    if (!IsLoopback(address.host)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--coordinator: the API key would go to ",
          text,
          " in the clear: give --tls_ca, or say --allow_insecure if the "
          "network is trusted"));
    }
  }
  return options;
}

absl::StatusOr<std::vector<std::string>> ParseCoordinators(
    const ClientFlags& flags) {
  return ParseAddressList(flags.coordinators, "--coordinator");
}

Client::Client(std::string address, RpcChannelOptions options)
    : address_(std::move(address)),
      channel_options_(std::move(options)),
      channel_(MakeChannel(address_, channel_options_)),
      generation_(v1::GenerationService::NewStub(channel_)),
      cluster_(v1::ClusterService::NewStub(channel_)) {}

absl::StatusOr<std::unique_ptr<Client>> Client::ConnectTo(
    const std::string& address,
    absl::Duration timeout,
    const RpcChannelOptions& options) {
  std::unique_ptr<Client> client(new Client(address, options));
  if (!WaitConnected(client->channel_.get(), absl::Now() + timeout)) {
    return absl::UnavailableError(
        absl::StrCat("no coordinator answers at ", address));
  }
  return client;
}

bool Client::WaitLost(absl::Duration timeout) {
  return channel_->WaitForStateChange(
      GRPC_CHANNEL_READY, absl::ToChronoTime(absl::Now() + timeout));
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(
    const ClientFlags& flags) {
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<std::string> addresses,
                            ParseCoordinators(flags));
  SPECWIRE_ASSIGN_OR_RETURN(const RpcChannelOptions options,
                            MakeChannelOptions(flags));
  for (const std::string& address : addresses) {
    absl::StatusOr<std::unique_ptr<Client>> client =
        ConnectTo(address, kConnectTimeout, options);
    if (client.ok()) return client;
  }
  return absl::UnavailableError(absl::StrCat(
      "no coordinator answers at ",
      absl::StrJoin(addresses, " or "),
      "; start a cluster with 'specwire up', or name its coordinator with "
      "--coordinator HOST:PORT",
      flags.tls.enabled() ? "; it must speak TLS with a certificate of --tls_ca"
                          : "; if it speaks TLS, give --tls_ca"));
}

void SetTimeout(absl::Duration timeout, grpc::ClientContext* context) {
  context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

int AskOnce(const ClientFlags& flags,
            absl::FunctionRef<grpc::Status(Client*, grpc::ClientContext*)> call,
            absl::FunctionRef<void()> print) {
  const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(flags);
  if (!client.ok()) return FailConnect(client.status());
  grpc::ClientContext context;
  SetTimeout(kAnswerTimeout, &context);
  const grpc::Status status = call(client->get(), &context);
  if (!status.ok()) return FailCall(status);
  print();
  return FinishOutput();
}

int FailConnect(const absl::Status& status) {
  PrintError(status.message());
  return status.code() == absl::StatusCode::kUnavailable ? kExitUnreachable
                                                         : kExitUsage;
}

int FailCall(const grpc::Status& status) {
  std::string message = status.error_message();
  if (message.empty()) {
    message = absl::StrCat("the call failed with gRPC status ",
                           static_cast<int>(status.error_code()));
  }
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      absl::StrAppend(&message, "; 'specwire nodes' shows who serves");
      break;
    case grpc::StatusCode::RESOURCE_EXHAUSTED: {
      const auto delay = RetryDelay(FromGrpcStatus(status));
      absl::StrAppend(&message,
                      "; try again ",
                      delay.has_value()
                          ? absl::StrCat("in ", absl::FormatDuration(*delay))
                          : "later");
      break;
    }
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      absl::StrAppend(&message,
                      "; the coordinator is up but too slow to answer");
      break;
    case grpc::StatusCode::UNAUTHENTICATED:
      absl::StrAppend(&message,
                      "; keys are given by --api_key_file or SPECWIRE_API_KEY");
      break;
    case grpc::StatusCode::UNIMPLEMENTED:
      absl::StrAppend(&message, "; this coordinator does not serve it");
      break;
    default:
      break;
  }
  PrintError(message);
  return kExitFailed;
}

}  // namespace specwire::cli
