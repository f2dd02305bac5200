// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/rpc/credentials.h"
#include "coordinator/api_keys.h"
#include "grpcpp/server_context.h"

namespace specwire::coordinator {

// Who may call what on a coordinator, whose one port serves users and nodes.
// Health.Check is open to all. Join needs a node's certificate, the rest of
// ClusterService an operator's; everything else is for users, who need an API
// key if there are `keys`, else any certificate. Without TLS there are no
// certificates and only keys are checked. UNAUTHENTICATED or PERMISSION_DENIED.
absl::Status CheckAccess(const Caller& caller, bool tls, const ApiKeys* keys);

// Metadata of calls that this process makes to itself for somebody else: the
// digest of his key, and his connection.
inline constexpr char kForKey[] = "specwire-for-key";
inline constexpr char kForPeer[] = "specwire-for-peer";

// Whom a call counts for where users take turns: the key if calls have `keys`,
// else the connection.
std::string UserOf(const grpc::CallbackServerContext& context, bool keys);

}  // namespace specwire::coordinator
