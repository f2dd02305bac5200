// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "common/metrics/names.h"

namespace specwire {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_usec) * 1e-6;
}

double CpuSeconds() {
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

double ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  if (!(file >> size >> resident)) return 0;
  return static_cast<double>(resident) *
         static_cast<double>(sysconf(_SC_PAGESIZE));
}

double OpenDescriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(folder);
  // Without the one that this took.
  return count - 1;
}

double MaxDescriptors() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return static_cast<double>(limit.rlim_cur);
}

// In seconds of Unix time; 0 if it cannot be told.
double StartTime() {
  // In /proc/self/stat the name, in parentheses, may hold anything; the start
  // is the 20th field behind it, in ticks since the machine's own start.
  std::ifstream stat("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(text.substr(end + 1));
  std::string field;
  for (int i = 0; i < 19; ++i) fields >> field;
  double ticks = 0;
  if (!(fields >> ticks)) return 0;
  std::ifstream machine("/proc/stat");
  std::string word;
  while (machine >> word) {
    double boot = 0;
    if (word == "btime" && machine >> boot) {
      return boot + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
    }
  }
  return 0;
}

}  // namespace

void AddProcessMetrics(MetricsRegistry* registry) {
  registry
      ->AddGauge(metric::kProcessStartTime,
                 "When the process started, in seconds of Unix time.")
      ->Set(StartTime());
  registry->AddCallbackCounter(metric::kProcessCpu,
                               "Processor time that the process has used, user "
                               "and system, in seconds.",
                               {},
                               CpuSeconds);
  registry->AddCallbackGauge(metric::kProcessResidentMemory,
                             "Memory of the process that is resident.",
                             {},
                             ResidentBytes);
  registry->AddCallbackGauge(metric::kProcessOpenFds,
                             "Descriptors that the process has open.",
                             {},
                             OpenDescriptors);
  registry->AddCallbackGauge(metric::kProcessMaxFds,
                             "Descriptors that the process may have open.",
                             {},
                             MaxDescriptors);
}

}  // namespace specwire
