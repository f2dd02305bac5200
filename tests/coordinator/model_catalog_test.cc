// SPDX-License-Identifier: Apache-2.0
#include "coordinator/model_catalog.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/request_validation_test_util.h"

namespace specwire::coordinator {
namespace {

using ::testing::HasSubstr;

TEST(ModelCatalogTest, RefusesVocabularyThatIsNotTheTokenizers) {
  const FakeModel fake;
  VerifierInfo info = Info(fake);
  info.vocabulary_fingerprint = "0000";
  ModelCatalog catalog;
  EXPECT_EQ(catalog.Add(info, fake.Tokenizer()).code(),
            absl::StatusCode::kFailedPrecondition);
  info = Info(fake);
  info.model.vocab_size = 300;
  EXPECT_EQ(catalog.Add(info, fake.Tokenizer()).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(catalog.Find(info.model.model_digest), nullptr);
}

class ResolveModelTest : public ::testing::Test {
 protected:
  // A verifier of `model` joins; returns its registration.
  Registry::Registration Serve(const std::string& node,
                               const FakeModel& model) {
    const auto registration =
        *registry_.Register({node,
                             NodeRole::kVerifier,
                             absl::StrCat("127.0.0.1:", ++port_),
                             node,
                             1},
                            absl::Now());
    EXPECT_TRUE(catalog_.Add(Info(model), model.Tokenizer()).ok());
    registry_.OnVerifierInfo(registration.node_id, Info(model));
    return registration;
  }
  absl::StatusOr<std::string> Resolve(const std::string& name) {
    const auto model = ResolveModel(name, catalog_, registry_);
    if (!model.ok()) return model.status();
    return (*model)->info.model.model_digest;
  }

  Registry registry_{RegistryOptions()};
  ModelCatalog catalog_;
  int port_ = 0;
};

TEST_F(ResolveModelTest, UnavailableWithoutVerifier) {
  EXPECT_EQ(Resolve("").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Resolve("fake").status().code(), absl::StatusCode::kUnavailable);
  const auto registration = Serve("v", FakeModel());
  EXPECT_TRUE(Resolve("fake").ok());
  registry_.OnDetached(registration, "power cut", absl::Now());
  EXPECT_THAT(std::string(Resolve("fake").status().message()),
              HasSubstr("power cut"));
}

TEST_F(ResolveModelTest, FindsByNameAndDigest) {
  FakeModel a;
  a.name = "a";
  FakeModel b;
  b.name = "b";
  Serve("v", a);
  EXPECT_EQ(*Resolve(""), a.Info().model_digest);
  Serve("w", b);
  EXPECT_EQ(*Resolve("a"), a.Info().model_digest);
  EXPECT_EQ(*Resolve(b.Info().model_digest), b.Info().model_digest);
  const absl::Status unnamed = Resolve("").status();
  EXPECT_EQ(unnamed.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unnamed.message()), HasSubstr("a, b"));
  const absl::Status unknown = Resolve("c").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("'c'"));
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("a, b"));
}

TEST_F(ResolveModelTest, TakesTheDigestWithMostVerifiers) {
  FakeModel one;
  FakeModel two;
  two.salt = 1;
  Serve("v1", one);
  Serve("v2", two);
  EXPECT_EQ(*Resolve(""),
            std::min(one.Info().model_digest, two.Info().model_digest));
  const FakeModel& other = *Resolve("") == one.Info().model_digest ? two : one;
  Serve("v3", other);
  EXPECT_EQ(*Resolve("fake"), other.Info().model_digest);
}

}  // namespace
}  // namespace specwire::coordinator
