// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/credentials.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "specwire/v1/draft.grpc.pb.h"
#include "tests/testing/certificates.h"

namespace specwire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kMethod[] = "/specwire.v1.DraftService/GetDrafter";

// Keeps what reaches it.
class EchoService final : public v1::DraftService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetDrafter(
      grpc::CallbackServerContext* context,
      const v1::GetDrafterRequest* /*request*/,
      v1::GetDrafterResponse* response) override {
    ++num_calls;
    saw_key = context->client_metadata().count("authorization") > 0;
    response->set_drafter("echo");
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  std::atomic<int> num_calls = 0;
  std::atomic<bool> saw_key = false;
};

class CredentialsTest : public testing::Test {
 protected:
  void Serve(const TlsFiles& files, ClientCertificates certificates) {
    RpcServerOptions options;
    options.credentials = MakeServerCredentials(
        files, certificates, [this](const Caller& caller) {
          const std::lock_guard lock(mutex_);
          callers_.push_back(caller);
          return verdict_;
        });
    auto server = RpcServer::Start(options, {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  static RpcChannelOptions With(const TlsFiles& files) {
    RpcChannelOptions options;
    options.credentials = MakeChannelCredentials(files);
    options.peer_name = kNodeCertificate;
    return options;
  }

  grpc::Status Call(const RpcChannelOptions& options) {
    const auto stub =
        v1::DraftService::NewStub(MakeChannel(server_->address(), options));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    v1::GetDrafterResponse response;
    return stub->GetDrafter(&context, {}, &response);
  }

  Caller LastCaller() {
    const std::lock_guard lock(mutex_);
    return callers_.empty() ? Caller() : callers_.back();
  }

  TestAuthority authority_;
  EchoService service_;
  std::mutex mutex_;
  std::vector<Caller> callers_;
  absl::Status verdict_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(CredentialsTest, TheGuardHearsOfTheCertificatesNames) {
  Serve(authority_.Issue(kNodeCertificate, "node"),
        ClientCertificates::kRequired);
  EXPECT_TRUE(
      Call(With(authority_.Issue(kCoordinatorCertificate, "peer"))).ok());
  const Caller caller = LastCaller();
  EXPECT_EQ(caller.path, kMethod);
  EXPECT_TRUE(caller.IsFor("specwire.v1.DraftService"));
  EXPECT_FALSE(caller.IsFor("specwire.v1.Draft"));
  EXPECT_TRUE(caller.has_certificate);
  EXPECT_THAT(caller.names, ElementsAre(kCoordinatorCertificate));
  EXPECT_TRUE(caller.HasName(kCoordinatorCertificate));
  EXPECT_FALSE(caller.HasName(kNodeCertificate));
}

TEST_F(CredentialsTest, WhereCertificatesAreOptionalNoneIsToldAsNone) {
  Serve(authority_.Issue(kNodeCertificate, "node"),
        ClientCertificates::kOptional);
  const grpc::Status status = Call(With(authority_.Root()));
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(LastCaller().has_certificate);
  EXPECT_THAT(LastCaller().names, IsEmpty());
}

TEST_F(CredentialsTest, RequiredCertificatesKeepOthersOut) {
  Serve(authority_.Issue(kNodeCertificate, "node"),
        ClientCertificates::kRequired);
  EXPECT_EQ(Call(With(authority_.Root())).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service_.num_calls, 0);
}

TEST_F(CredentialsTest, EvenOptionalCertificatesMustBeRight) {
  Serve(authority_.Issue(kNodeCertificate, "node"),
        ClientCertificates::kOptional);
  TestAuthority other;
  TlsFiles stranger = other.Issue(kCoordinatorCertificate, "stranger");
  stranger.ca = authority_.Root().ca;
  EXPECT_EQ(Call(With(stranger)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(
      Call(With(authority_.Issue(
               kCoordinatorCertificate, "old", absl::Now() - absl::Hours(1))))
          .error_code(),
      grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service_.num_calls, 0);
  EXPECT_TRUE(Call(With(authority_.Root())).ok());
}

TEST_F(CredentialsTest, AServerOfAnotherRootOrNameIsNotTrusted) {
  TestAuthority other;
  Serve(other.Issue(kNodeCertificate, "node"), ClientCertificates::kOptional);
  EXPECT_EQ(Call(With(authority_.Root())).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  RpcChannelOptions options = With(other.Root());
  EXPECT_TRUE(Call(options).ok());
  options.peer_name = kCoordinatorCertificate;
  EXPECT_EQ(Call(options).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service_.num_calls, 1);
}

TEST_F(CredentialsTest, PlainAndTlsDoNotMeet) {
  Serve(authority_.Issue(kNodeCertificate, "node"),
        ClientCertificates::kOptional);
  EXPECT_EQ(Call({}).error_code(), grpc::StatusCode::UNAVAILABLE);
  Serve({}, ClientCertificates::kOptional);
  EXPECT_EQ(Call(With(authority_.Root())).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service_.num_calls, 0);
}

TEST_F(CredentialsTest, AKeyReachesTheGuardAndNobodyElse) {
  for (const bool tls : {false, true}) {
    Serve(tls ? authority_.Issue(kNodeCertificate, "node") : TlsFiles(),
          ClientCertificates::kOptional);
    RpcChannelOptions options = With(tls ? authority_.Root() : TlsFiles());
    EXPECT_TRUE(Call(options).ok());
    EXPECT_EQ(LastCaller().authorization, "");
    options.api_key = "canary";
    EXPECT_TRUE(Call(options).ok());
    EXPECT_EQ(LastCaller().authorization, "Bearer canary");
    EXPECT_EQ(LastCaller().path, kMethod);
    EXPECT_FALSE(LastCaller().has_certificate);
    EXPECT_FALSE(service_.saw_key);
  }
}

TEST_F(CredentialsTest, TheGuardsErrorIsTheCallsAndNoHandlerRuns) {
  verdict_ = absl::UnauthenticatedError("no key");
  for (const bool tls : {false, true}) {
    Serve(tls ? authority_.Issue(kNodeCertificate, "node") : TlsFiles(),
          ClientCertificates::kOptional);
    const grpc::Status status =
        Call(With(tls ? authority_.Root() : TlsFiles()));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(status.error_message(), "no key");
  }
  EXPECT_EQ(service_.num_calls, 0);
}

TEST_F(CredentialsTest, CertificatesAreRotatedWithoutARestart) {
  Serve(authority_.Issue(kNodeCertificate, "node"),
        ClientCertificates::kRequired);
  const RpcChannelOptions options =
      With(authority_.Issue(kCoordinatorCertificate, "peer"));
  ASSERT_TRUE(Call(options).ok());
  // The same channel credentials and the same server, other files.
  const auto await = [&](bool ok) {
    const absl::Time give_up = absl::Now() + absl::Seconds(30);
    while (Call(options).ok() != ok && absl::Now() < give_up) {
      absl::SleepFor(absl::Milliseconds(100));
    }
    return Call(options).ok() == ok;
  };
  for (const auto& [name, file] : {std::pair(kCoordinatorCertificate, "peer"),
                                   std::pair(kNodeCertificate, "node")}) {
    authority_.Issue(name, file, absl::Now() - absl::Hours(1));
    EXPECT_TRUE(await(false)) << file;
    authority_.Issue(name, file);
    EXPECT_TRUE(await(true)) << file;
  }
}

}  // namespace
}  // namespace specwire
