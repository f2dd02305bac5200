// SPDX-License-Identifier: Apache-2.0
#include "common/base/processors.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace specwire {
namespace {

// Of the affinity mask; 0 if it cannot be told.
int AllowedProcessors() {
  // More than any kernel is built for.
  constexpr size_t kMaxSets = 1024;
  for (size_t sets = 1; sets <= kMaxSets; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    const size_t bytes = sets * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) == 0) {
      return CPU_COUNT_S(bytes, mask.data());
    }
    // The kernel's masks are larger than that.
    if (errno != EINVAL) return 0;
  }
  return 0;
}

// A file's content; empty if there is no such file.
std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "200000" of every "100000" microseconds is 2; "max" and "-1" are no limit.
std::optional<double> Quota(absl::string_view quota, absl::string_view period) {
  double quota_us = 0;
  double period_us = 0;
  if (!absl::SimpleAtod(quota, &quota_us) ||
      !absl::SimpleAtod(period, &period_us) || quota_us <= 0 ||
      period_us <= 0) {
    return std::nullopt;
  }
  return quota_us / period_us;
}

// Of one cgroup, version 2 or 1.
std::optional<double> FolderQuota(const std::string& folder, bool is_v2) {
  if (is_v2) {
    const std::string text = ReadText(folder + "/cpu.max");
    const std::vector<absl::string_view> parts =
        absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
    return parts.size() == 2 ? Quota(parts[0], parts[1]) : std::nullopt;
  }
  return Quota(ReadText(folder + "/cpu.cfs_quota_us"),
               ReadText(folder + "/cpu.cfs_period_us"));
}

}  // namespace

std::optional<double> CgroupQuota(absl::string_view self_cgroup,
                                  const std::string& mount) {
  std::optional<double> least;
  for (const absl::string_view line : absl::StrSplit(self_cgroup, '\n')) {
    // "0::/path" for version 2, "4:cpu,cpuacct:/path" for version 1.
    const std::vector<absl::string_view> fields =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<absl::string_view> controllers =
        absl::StrSplit(fields[1], ',');
    const bool is_v2 = fields[1].empty();
    if (!is_v2 && std::find(controllers.begin(), controllers.end(), "cpu") ==
                      controllers.end()) {
      continue;
    }
    const std::string root = is_v2 ? mount : mount + "/cpu";
    // A limit further up binds too. In a container the path may be that of the
    // host: then only the root exists.
    std::string path(fields[2]);
    while (true) {
      const std::optional<double> quota = FolderQuota(root + path, is_v2);
      if (quota.has_value() && (!least.has_value() || *quota < *least)) {
        least = quota;
      }
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return least;
}

int UsableProcessors() {
  int processors = AllowedProcessors();
  if (processors < 1) {
    processors = static_cast<int>(std::thread::hardware_concurrency());
  }
  const std::optional<double> quota =
      CgroupQuota(ReadText("/proc/self/cgroup"), "/sys/fs/cgroup");
  if (quota.has_value() && *quota < processors) {
    processors = static_cast<int>(*quota);
  }
  return std::max(processors, 1);
}

}  // namespace specwire
