// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace specwire {

// Most threads that any pool of ours is given.
inline constexpr int kMaxThreads = 256;

// Processors that this process may keep busy, at least 1: those that it may run
// on, or fewer where a cgroup's quota holds less time than that (1.5
// processors' time counts as 1: a thread more would only be throttled). The
// number that a pool of threads should have.
int UsableProcessors();

// The least quota, in processors, of a process's cgroups and all above them;
// none if nothing limits it. `self_cgroup` is the content of /proc/self/cgroup,
// `mount` the folder of the cgroup file systems (/sys/fs/cgroup); versions 1
// and 2 are read.
std::optional<double> CgroupQuota(absl::string_view self_cgroup,
                                  const std::string& mount);

}  // namespace specwire
