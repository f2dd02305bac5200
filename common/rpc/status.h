// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace specwire {

// The only conversion between the two status types. Codes are the same set; a
// code outside it becomes UNKNOWN. Messages longer than 2 KiB are cut, because
// they travel in headers and a peer drops headers that are too large. A retry
// delay (common/base/retry_delay.h) travels as google.rpc.RetryInfo in the
// status details, the mark of a process that drains (common/base/draining.h) as
// google.rpc.ErrorInfo; other details are dropped.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace specwire
