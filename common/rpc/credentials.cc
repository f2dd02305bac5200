// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/credentials.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/limits.h"
#include "common/rpc/status.h"
#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace specwire {
namespace {

constexpr char kPath[] = ":path";
constexpr char kAuthorization[] = "authorization";

std::string ToString(grpc::string_ref text) {
  return std::string(text.data(), text.size());
}

// The guard of a server with TLS.
class TlsGuard final : public grpc::AuthMetadataProcessor {
 public:
  explicit TlsGuard(CallGuard guard) : guard_(std::move(guard)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata,
                       grpc::AuthContext* context,
                       OutputMetadata* consumed,
                       OutputMetadata* /*response*/) override {
    Caller caller;
    for (const auto& [name, value] : metadata) {
      if (name == kPath) caller.path = ToString(value);
      if (name == kAuthorization) {
        caller.authorization = ToString(value);
        // Handlers never see keys.
        consumed->emplace(kAuthorization, caller.authorization);
      }
    }
    caller.has_certificate = context->IsPeerAuthenticated();
    for (const grpc::string_ref& name :
         context->FindPropertyValues(GRPC_PEER_DNS_PROPERTY_NAME)) {
      caller.names.push_back(ToString(name));
    }
    return ToGrpcStatus(guard_(caller));
  }

 private:
  const CallGuard guard_;
};

absl::string_view View(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
          GRPC_SLICE_LENGTH(slice)};
}

// Asks the guard, `state`, about a call without TLS.
void CheckPlainCall(void* state,
                    grpc_auth_context* /*context*/,
                    const grpc_metadata* metadata,
                    size_t count,
                    grpc_process_auth_metadata_done_cb done,
                    void* user_data) {
  Caller caller;
  const grpc_metadata* key = nullptr;
  for (const grpc_metadata* entry = metadata; entry != metadata + count;
       ++entry) {
    const absl::string_view name = View(entry->key);
    if (name == kPath) caller.path = std::string(View(entry->value));
    if (name == kAuthorization) {
      caller.authorization = std::string(View(entry->value));
      key = entry;
    }
  }
  const grpc::Status status =
      ToGrpcStatus((*static_cast<const CallGuard*>(state))(caller));
  // The key goes no further.
  done(user_data,
       key,
       key == nullptr ? 0 : 1,
       nullptr,
       0,
       static_cast<grpc_status_code>(status.error_code()),
       status.error_message().c_str());
}

// Credentials without TLS that have a guard: those of gRPC 1.51's C++ layer
// refuse one, those of its core do not.
class GuardedPlainCredentials final : public grpc::ServerCredentials {
 public:
  explicit GuardedPlainCredentials(CallGuard guard)
      : credentials_(grpc_insecure_server_credentials_create()) {
    // The core's credentials own the guard: they outlive this object.
    grpc_auth_metadata_processor processor = {};
    processor.state = new CallGuard(std::move(guard));
    processor.process = &CheckPlainCall;
    processor.destroy = [](void* state) {
      delete static_cast<CallGuard*>(state);
    };
    grpc_server_credentials_set_auth_metadata_processor(credentials_,
                                                        processor);
  }
  ~GuardedPlainCredentials() override {
    grpc_server_credentials_release(credentials_);
  }
  GuardedPlainCredentials(const GuardedPlainCredentials&) = delete;
  GuardedPlainCredentials& operator=(const GuardedPlainCredentials&) = delete;

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/)
      override {}

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

std::shared_ptr<grpc::experimental::CertificateProviderInterface> WatchFiles(
    const TlsFiles& files) {
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      files.key,
      files.cert,
      files.ca,
      static_cast<unsigned>(absl::ToInt64Seconds(kCertificateRefresh)));
}

}  // namespace

bool Caller::IsFor(absl::string_view service) const {
  return absl::StartsWith(path, absl::StrCat("/", service, "/"));
}

bool Caller::HasName(absl::string_view name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    const TlsFiles& files, ClientCertificates certificates, CallGuard guard) {
  if (!files.enabled()) {
    if (guard == nullptr) return grpc::InsecureServerCredentials();
    return std::make_shared<GuardedPlainCredentials>(std::move(guard));
  }
  grpc::experimental::TlsServerCredentialsOptions options(WatchFiles(files));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(
      certificates == ClientCertificates::kRequired
          ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
          : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::TlsServerCredentials(options);
  if (guard != nullptr) {
    credentials->SetAuthMetadataProcessor(
        std::make_shared<TlsGuard>(std::move(guard)));
  }
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(
    const TlsFiles& files) {
  if (!files.enabled()) return nullptr;
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(WatchFiles(files));
  options.watch_root_certs();
  if (!files.cert.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace specwire
