// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/server.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/thread_name.h"
#include "common/rpc/callback_queue.h"
#include "common/rpc/listener.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/channel_arguments.h"

namespace specwire {
namespace {

int Millis(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// Reflection for one server. Linking its library switches it on for all
// servers of the process; this switches it off again where it is not wanted.
class ReflectionOption final : public grpc::ServerBuilderOption {
 public:
  explicit ReflectionOption(bool wanted) : wanted_(wanted) {}

  void UpdateArguments(grpc::ChannelArguments* /*args*/) override {}

  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*
                         plugins) override {
    auto reflection =
        std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>();
    const std::string name = reflection->name();
    plugins->erase(std::remove_if(plugins->begin(),
                                  plugins->end(),
                                  [&](const auto& plugin) {
                                    return plugin->name() == name;
                                  }),
                   plugins->end());
    if (wanted_) plugins->push_back(std::move(reflection));
  }

 private:
  const bool wanted_;
};

void SetLimits(const RpcServerOptions& options, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(options.max_receive_message_bytes);
  builder->SetMaxSendMessageSize(options.max_send_message_bytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE,
                              options.max_metadata_bytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              options.max_concurrent_streams);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              Millis(options.handshake_timeout));
  if (options.max_connection_age != absl::InfiniteDuration()) {
    // Without the argument for a grace it is unlimited.
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                                Millis(options.max_connection_age));
  }
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                              Millis(options.keepalive_time));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              Millis(options.keepalive_timeout));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Without this a client that pings an idle connection more often than every
  // two hours is cut off.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      Millis(options.min_ping_interval));
  // As in MakeChannel.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  grpc::ResourceQuota quota("specwire_server");
  quota.Resize(static_cast<size_t>(options.memory_quota_bytes));
  builder->SetResourceQuota(quota);
}

void LogLimits(const RpcServerOptions& options,
               const std::string& address,
               int max_connections) {
  SPECWIRE_LOG(Info,
               "listening on ",
               address,
               ": receive ",
               options.max_receive_message_bytes,
               " B, send ",
               options.max_send_message_bytes,
               " B, metadata ",
               options.max_metadata_bytes,
               " B, ",
               max_connections,
               " connections, ",
               options.max_concurrent_streams,
               " streams on each, handshake within ",
               absl::FormatDuration(options.handshake_timeout),
               ", connection age ",
               absl::FormatDuration(options.max_connection_age),
               ", keepalive ",
               absl::FormatDuration(options.keepalive_time),
               "/",
               absl::FormatDuration(options.keepalive_timeout),
               ", pings at least ",
               absl::FormatDuration(options.min_ping_interval),
               " apart, ",
               options.memory_quota_bytes >> 20,
               " MiB for calls, reflection ",
               options.reflection ? "on" : "off");
}

}  // namespace

struct RpcServer::State {
  // Stopped before the server ends: what comes later would leak.
  std::unique_ptr<Listener> listener;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
  Mutex mutex;
  CondVar changed;
  bool shutdown_started ABSL_GUARDED_BY(mutex) = false;
  // gRPC's Shutdown has returned.
  bool ended ABSL_GUARDED_BY(mutex) = false;
  // No call of RpcServer::Shutdown is at work any more.
  bool judged ABSL_GUARDED_BY(mutex) = false;
  absl::Status result ABSL_GUARDED_BY(mutex);
};

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const RpcServerOptions& options,
    const std::vector<grpc::Service*>& services) {
  SPECWIRE_ASSIGN_OR_RETURN(HostPort address,
                            ParseHostPort(options.listen, "listen"));
  KeepCallbackQueue();
  auto state = std::make_shared<State>();
  SPECWIRE_ASSIGN_OR_RETURN(
      state->listener,
      Listener::Bind(
          {address, options.max_connections, options.keepalive_timeout}));
  address.port = state->listener->port();

  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  SetLimits(options, &builder);
  builder.SetOption(std::make_unique<ReflectionOption>(options.reflection));
  for (grpc::Service* service : services) builder.RegisterService(service);
  state->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      options.credentials != nullptr ? options.credentials
                                     : grpc::InsecureServerCredentials());
  state->server = builder.BuildAndStart();
  if (state->server == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address.ToString()));
  }
  state->listener->Start(
      [acceptor = state->acceptor.get()](int listening_fd, int fd) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
            connection;
        connection.listener_fd = listening_fd;
        connection.fd = fd;
        acceptor->HandleNewConnection(&connection);
      });
  LogLimits(options, address.ToString(), state->listener->max_connections());
  return std::unique_ptr<RpcServer>(
      new RpcServer(std::move(state), address, options.handler_timeout));
}

RpcServer::RpcServer(std::shared_ptr<State> state,
                     const HostPort& address,
                     absl::Duration handler_timeout)
    : state_(std::move(state)),
      port_(address.port),
      address_(address.ToString()),
      handler_timeout_(handler_timeout) {}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()).IgnoreError(); }

std::shared_ptr<grpc::Channel> RpcServer::InProcessChannel() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  return state_->server->InProcessChannel(arguments);
}

void RpcServer::SetServing(const std::string& service, bool serving) {
  state_->server->GetHealthCheckService()->SetServingStatus(service, serving);
}

absl::Status RpcServer::Shutdown(absl::Duration grace) {
  {
    MutexLock lock(&state_->mutex);
    if (state_->shutdown_started) {
      while (!state_->judged) state_->changed.Wait(&state_->mutex);
      return state_->result;
    }
    state_->shutdown_started = true;
  }
  state_->listener->Stop();
  state_->server->GetHealthCheckService()->Shutdown();
  // gRPC's Shutdown waits for every handler, for ever if need be, so it runs on
  // a thread that can be left behind.
  std::thread waiter([state = state_, deadline = absl::Now() + grace] {
    SetThreadName("rpc_shutdown");
    state->server->Shutdown(absl::ToChronoTime(deadline));
    MutexLock lock(&state->mutex);
    state->ended = true;
    state->changed.NotifyAll();
  });
  const SteadyClock clock;
  const absl::Time give_up = clock.Now() + grace + handler_timeout_;
  bool ended = false;
  {
    MutexLock lock(&state_->mutex);
    while (!state_->ended && clock.Now() < give_up) {
      state_->changed.WaitFor(&state_->mutex, give_up - clock.Now());
    }
    ended = state_->ended;
  }
  absl::Status result;
  if (ended) {
    // The server must go with this object, not with the thread.
    waiter.join();
  } else {
    waiter.detach();
    result = absl::DeadlineExceededError(
        absl::StrCat("calls on ",
                     address_,
                     " did not end within ",
                     absl::FormatDuration(handler_timeout_),
                     " of being cancelled"));
    SPECWIRE_LOG(Error, result.message());
  }
  MutexLock lock(&state_->mutex);
  state_->result = result;
  state_->judged = true;
  state_->changed.NotifyAll();
  return result;
}

}  // namespace specwire
