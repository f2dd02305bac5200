// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/registry.h"
#include "gtest/gtest.h"

namespace specwire::coordinator {

inline const absl::Time kStart = absl::FromUnixSeconds(1000);

inline NodeIdentity Identity(const std::string& name,
                             NodeRole role,
                             int port,
                             const std::string& incarnation = "") {
  return {name,
          role,
          absl::StrCat("127.0.0.1:", port),
          incarnation.empty() ? absl::StrCat(name, "-first") : incarnation,
          7};
}

inline VerifierInfo Verifier(const std::string& digest,
                             const std::string& fingerprint = "vocabulary") {
  VerifierInfo info;
  info.model.name = "model";
  info.model.model_digest = digest;
  info.vocabulary_fingerprint = fingerprint;
  return info;
}

inline DrafterInfo Drafter(const std::string& name,
                           const std::string& fingerprint = "") {
  DrafterInfo info;
  info.name = name;
  info.vocabulary_fingerprint = fingerprint;
  return info;
}

class RegistryTest : public ::testing::Test {
 protected:
  Registry::Registration Join(const NodeIdentity& identity,
                              absl::Time now = kStart) {
    const auto registration = registry_.Register(identity, now);
    EXPECT_TRUE(registration.ok()) << registration.status();
    return *registration;
  }
  Registry::Registration JoinVerifier(const std::string& name,
                                      int port,
                                      const VerifierInfo& info) {
    const auto registration = Join(Identity(name, NodeRole::kVerifier, port));
    registry_.OnVerifierInfo(registration.node_id, info);
    return registration;
  }
  Registry::Registration JoinDrafter(const std::string& name,
                                     int port,
                                     const DrafterInfo& info) {
    const auto registration = Join(Identity(name, NodeRole::kDraft, port));
    registry_.OnDrafterInfo(registration.node_id, info);
    return registration;
  }
  NodeInfo Node(const std::string& node_id) {
    for (const NodeInfo& node : registry_.Nodes()) {
      if (node.node_id == node_id) return node;
    }
    return {};
  }
  NodeState State(const Registry::Registration& registration) {
    return Node(registration.node_id).state;
  }

  Registry registry_{RegistryOptions{.max_silence = absl::Seconds(3),
                                     .max_stall = absl::Seconds(2),
                                     .max_gone_nodes = 4}};
};

}  // namespace specwire::coordinator
