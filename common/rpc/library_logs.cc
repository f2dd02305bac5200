// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/library_logs.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"

namespace specwire {
namespace {

constexpr absl::Duration kPeriod = absl::Minutes(1);

// How many lines may still be written.
class LineBudget {
 public:
  // Whether one more may; if so, `left_out` is the number of those that might
  // not since the last one.
  bool Take(int64_t* left_out) {
    const absl::Time now = clock_.Now();
    MutexLock lock(&mutex_);
    if (now - begin_ > kPeriod) {
      begin_ = now;
      num_written_ = 0;
    }
    if (num_written_ >= kMaxLibraryLines) {
      ++num_left_out_;
      return false;
    }
    ++num_written_;
    *left_out = std::exchange(num_left_out_, 0);
    return true;
  }

 private:
  const SteadyClock clock_;
  Mutex mutex_;
  absl::Time begin_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int num_written_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

void Write(bool is_error,
           absl::string_view library,
           absl::string_view message) {
  // Never destroyed: libraries log until the process ends.
  static LineBudget& budget = *new LineBudget;
  if (!is_error && !LogEnabled(LogLevel::kDebug)) return;
  int64_t left_out = 0;
  if (!budget.Take(&left_out)) return;
  LogLine(is_error ? LogLevel::kWarning : LogLevel::kDebug,
          absl::StrCat(library,
                       ": ",
                       absl::StripTrailingAsciiWhitespace(message),
                       left_out == 0
                           ? std::string()
                           : absl::StrCat(" (", left_out, " were left out)")));
}

void WriteGrpc(gpr_log_func_args* args) {
  Write(args->severity == GPR_LOG_SEVERITY_ERROR, "gRPC", args->message);
}

void WriteProtobuf(google::protobuf::LogLevel level,
                   const char* /*file*/,
                   int /*line*/,
                   const std::string& message) {
  Write(level >= google::protobuf::LOGLEVEL_ERROR, "protobuf", message);
}

}  // namespace

void RouteLibraryLogs() {
  gpr_set_log_function(&WriteGrpc);
  google::protobuf::SetLogHandler(&WriteProtobuf);
}

}  // namespace specwire
