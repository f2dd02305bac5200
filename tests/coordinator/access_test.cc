// SPDX-License-Identifier: Apache-2.0
#include "coordinator/access.h"

#include <filesystem>
#include <fstream>

#include "common/base/sha256.h"
#include "gtest/gtest.h"

namespace specwire::coordinator {
namespace {

constexpr char kGenerate[] = "/specwire.v1.GenerationService/Generate";
constexpr char kJoin[] = "/specwire.v1.ClusterService/Join";
constexpr char kDrain[] = "/specwire.v1.ClusterService/DrainNode";
constexpr char kList[] = "/specwire.v1.ClusterService/ListNodes";
constexpr char kHealth[] = "/grpc.health.v1.Health/Check";
constexpr char kReflection[] =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

class AccessTest : public testing::Test {
 protected:
  AccessTest() {
    const std::string path =
        (std::filesystem::path(testing::TempDir()) / "access-keys").string();
    Sha256 sha;
    sha.Update("secret");
    std::ofstream(path) << sha.FinishHex() << '\n';
    keys_ = *ApiKeys::Load(path);
    std::filesystem::remove(path);
  }

  static Caller Plain(const std::string& path, const std::string& key = "") {
    Caller caller;
    caller.path = path;
    if (!key.empty()) caller.authorization = "Bearer " + key;
    return caller;
  }
  static Caller Certified(const std::string& path,
                          const std::string& name,
                          const std::string& key = "") {
    Caller caller = Plain(path, key);
    caller.has_certificate = true;
    caller.names = {name};
    return caller;
  }

  static constexpr absl::StatusCode kOk = absl::StatusCode::kOk;
  static constexpr absl::StatusCode kDenied =
      absl::StatusCode::kPermissionDenied;
  static constexpr absl::StatusCode kUnknown =
      absl::StatusCode::kUnauthenticated;
  std::unique_ptr<ApiKeys> keys_;
};

TEST_F(AccessTest, OnlyANodesCertificateJoins) {
  for (const ApiKeys* keys : {static_cast<ApiKeys*>(nullptr), keys_.get()}) {
    EXPECT_EQ(
        CheckAccess(Certified(kJoin, kNodeCertificate), true, keys).code(),
        kOk);
    for (const char* name :
         {"", "anna", kOperatorCertificate, kCoordinatorCertificate}) {
      EXPECT_EQ(
          CheckAccess(Certified(kJoin, name, "secret"), true, keys).code(),
          kDenied);
    }
    EXPECT_EQ(CheckAccess(Plain(kJoin, "secret"), true, keys).code(), kDenied);
  }
}

TEST_F(AccessTest, OnlyAnOperatorsCertificateOperates) {
  for (const char* path : {kDrain, kList}) {
    EXPECT_EQ(
        CheckAccess(Certified(path, kOperatorCertificate), true, keys_.get())
            .code(),
        kOk);
    EXPECT_EQ(
        CheckAccess(
            Certified(path, kNodeCertificate, "secret"), true, keys_.get())
            .code(),
        kDenied);
    EXPECT_EQ(CheckAccess(Plain(path, "secret"), true, keys_.get()).code(),
              kDenied);
  }
}

TEST_F(AccessTest, UsersNeedAKeyWhereThereAreKeys) {
  for (const char* path : {kGenerate, kReflection}) {
    for (const bool tls : {false, true}) {
      EXPECT_EQ(CheckAccess(Plain(path, "secret"), tls, keys_.get()).code(),
                kOk);
      EXPECT_EQ(CheckAccess(Plain(path, "wrong"), tls, keys_.get()).code(),
                kUnknown);
      EXPECT_EQ(CheckAccess(Plain(path), tls, keys_.get()).code(), kUnknown);
    }
    EXPECT_EQ(
        CheckAccess(Certified(path, kOperatorCertificate), true, keys_.get())
            .code(),
        kUnknown);
  }
}

TEST_F(AccessTest, WithoutKeysUsersNeedAnyCertificate) {
  EXPECT_EQ(CheckAccess(Certified(kGenerate, "anna"), true, nullptr).code(),
            kOk);
  EXPECT_EQ(CheckAccess(Plain(kGenerate, "secret"), true, nullptr).code(),
            kUnknown);
}

TEST_F(AccessTest, WithoutTlsOnlyKeysAreChecked) {
  EXPECT_EQ(CheckAccess(Plain(kGenerate), false, nullptr).code(), kOk);
  EXPECT_EQ(CheckAccess(Plain(kJoin), false, keys_.get()).code(), kOk);
  EXPECT_EQ(CheckAccess(Plain(kList), false, keys_.get()).code(), kOk);
}

TEST_F(AccessTest, OneLookAtHealthIsOpen) {
  EXPECT_EQ(
      CheckAccess(Plain("/grpc.health.v1.Health/Watch"), true, keys_.get())
          .code(),
      kUnknown);
  EXPECT_EQ(CheckAccess(Plain(kHealth), true, keys_.get()).code(), kOk);
}

TEST_F(AccessTest, MethodsThatDoNotExistNeedNoLess) {
  for (const char* path :
       {"", "/", "/x", "//", "/specwire.v1.ClusterService", "Join"}) {
    EXPECT_EQ(CheckAccess(Plain(path), true, keys_.get()).code(), kUnknown)
        << path;
    EXPECT_EQ(CheckAccess(Plain(path), true, nullptr).code(), kUnknown) << path;
  }
}

}  // namespace
}  // namespace specwire::coordinator
