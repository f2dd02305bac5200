// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "google/protobuf/wrappers.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"

namespace specwire {

// What grpc.health.v1.Health says of a service.
inline constexpr int kHealthServing = 1;
inline constexpr int kHealthNotServing = 2;

// Asks at `channel`; the empty name is the whole server. Health's messages have
// one field each, like those that stand in for them here: the service's name,
// and its status.
inline int CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                       const std::string& service = "") {
  grpc::TemplatedGenericStub<google::protobuf::StringValue,
                             google::protobuf::Int32Value>
      stub(channel);
  grpc::ClientContext context;
  google::protobuf::StringValue request;
  request.set_value(service);
  google::protobuf::Int32Value response;
  absl::Notification done;
  stub.UnaryCall(&context,
                 "/grpc.health.v1.Health/Check",
                 grpc::StubOptions(),
                 &request,
                 &response,
                 [&done](const grpc::Status& status) {
                   EXPECT_TRUE(status.ok()) << status.error_message();
                   done.Notify();
                 });
  done.WaitForNotification();
  return response.value();
}

}  // namespace specwire
