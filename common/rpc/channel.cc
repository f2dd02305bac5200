// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/channel.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/callback_queue.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/client_interceptor.h"

namespace specwire {
namespace {

// How long one attempt to connect may take; also what gRPC calls the least
// backoff, which it applies to attempts that do not fail by themselves.
constexpr absl::Duration kConnectTimeout = absl::Seconds(3);

int Millis(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// Adds the API key to a call. gRPC's own way, call credentials, works with TLS
// alone.
class KeySender final : public grpc::experimental::Interceptor {
 public:
  explicit KeySender(std::string key) : key_(std::move(key)) {}

  void Intercept(
      grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::
                PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->insert(
          {"authorization", absl::StrCat("Bearer ", key_)});
    }
    methods->Proceed();
  }

 private:
  const std::string key_;
};

class KeySenderFactory final
    : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit KeySenderFactory(std::string key) : key_(std::move(key)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* /*info*/) override {
    return new KeySender(key_);
  }

 private:
  const std::string key_;
};

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const RpcChannelOptions& options) {
  KeepCallbackQueue();
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(options.max_receive_message_bytes);
  args.SetMaxSendMessageSize(options.max_send_message_bytes);
  args.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Millis(options.keepalive_time));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Millis(options.keepalive_timeout));
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Windows stay small, as our messages are: a reader that stops holds its
  // sender back after tens of kilobytes, not megabytes. And no pings that the
  // server has not agreed to.
  args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
              Millis(options.min_reconnect_backoff));
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Millis(kConnectTimeout));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
              Millis(options.max_reconnect_backoff));
  args.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS,
              Millis(options.max_reconnect_backoff));
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // No settings from DNS, and no retries behind our back: a sequence that is
  // sent again must be so on purpose.
  args.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  if (options.credentials != nullptr && !options.peer_name.empty()) {
    args.SetSslTargetNameOverride(options.peer_name);
  }
  const std::shared_ptr<grpc::ChannelCredentials> credentials =
      options.credentials != nullptr ? options.credentials
                                     : grpc::InsecureChannelCredentials();
  if (options.api_key.empty()) {
    return grpc::CreateCustomChannel(address, credentials, args);
  }
  std::vector<
      std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>>
      interceptors;
  interceptors.push_back(std::make_unique<KeySenderFactory>(options.api_key));
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      address, credentials, args, std::move(interceptors));
}

}  // namespace specwire
