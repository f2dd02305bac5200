// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "common/rpc/channel.h"
#include "specwire/v1/draft.grpc.pb.h"
#include "specwire/v1/inspect.grpc.pb.h"
#include "specwire/v1/verifier.grpc.pb.h"

namespace specwire::coordinator {

// The way to one node: a channel of its own, and what can be called on it.
//
// Thread safety: any thread; it does not change.
struct NodeLink {
  NodeLink(const std::string& node_address, const RpcChannelOptions& options)
      : address(node_address),
        channel(MakeChannel(address, options)),
        verifier(channel),
        drafter(channel),
        inspect(channel) {}

  const std::string address;
  const std::shared_ptr<grpc::Channel> channel;
  mutable v1::VerifierService::Stub verifier;
  mutable v1::DraftService::Stub drafter;
  mutable v1::InspectService::Stub inspect;
};

}  // namespace specwire::coordinator
