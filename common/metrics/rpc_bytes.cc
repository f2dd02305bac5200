// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/rpc_bytes.h"

#include "common/metrics/names.h"

namespace specwire {

Counter* AddRpcBytes(MetricsRegistry* registry,
                     const std::string& method,
                     const std::string& direction) {
  return registry->AddCounter(
      metric::kRpcBytes,
      "Payload of the messages of streaming calls, in bytes.",
      {{metric::kMethod, method}, {metric::kDirection, direction}});
}

}  // namespace specwire
