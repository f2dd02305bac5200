// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "common/rpc/credentials.h"
#include "coordinator/api_keys.h"

namespace specwire::coordinator {

// Who may call what on a coordinator, whose one port serves users and nodes.
// Health.Check is open to all. Join needs a node's certificate, the rest of
// ClusterService an operator's; everything else is for users, who need an API
// key if there are `keys`, else any certificate. Without TLS there are no
// certificates and only keys are checked. UNAUTHENTICATED or PERMISSION_DENIED.
absl::Status CheckAccess(const Caller& caller, bool tls, const ApiKeys* keys);

}  // namespace specwire::coordinator
